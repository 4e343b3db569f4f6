"""A collection in Thai, whose sentences have no blanks between words: from its import to the board, by the worker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.test import Client

from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Entry
from submissions.jobs.runner import drain_queue
from submissions.queue.queue import create_requested_jobs
from tests.submissions.collections import HEADER

pytestmark = pytest.mark.django_db

#: Countries and their capitals.
CAPITALS = {
    "ญี่ปุ่น": "โตเกียว", "ฝรั่งเศส": "ปารีส", "เยอรมนี": "เบอร์ลิน", "อิตาลี": "โรม", "สเปน": "มาดริด", "รัสเซีย": "มอสโก",
    "จีน": "ปักกิ่ง", "อินเดีย": "นิวเดลี", "เวียดนาม": "ฮานอย", "ลาว": "เวียงจันทน์", "กัมพูชา": "พนมเปญ",
    "มาเลเซีย": "กัวลาลัมเปอร์", "อินโดนีเซีย": "จาการ์ตา", "ฟิลิปปินส์": "มะนิลา", "เกาหลีใต้": "โซล", "อังกฤษ": "ลอนดอน",
    "กรีซ": "เอเธนส์", "ตุรกี": "อังการา", "อียิปต์": "ไคโร", "เคนยา": "ไนโรบี", "บราซิล": "บราซิเลีย", "ชิลี": "ซันติอาโก",
    "เปรู": "ลิมา", "แคนาดา": "ออตตาวา", "โปแลนด์": "วอร์ซอ", "นอร์เวย์": "ออสโล", "สวีเดน": "สตอกโฮล์ม",
    "ฟินแลนด์": "เฮลซิงกิ", "เนปาล": "กาฐมาณฑุ", "คิวบา": "ฮาวานา", "โปรตุเกส": "ลิสบอน", "ออสเตรีย": "เวียนนา",
}  # fmt: skip
#: Thai has blanks between clauses, and here and there around a name.
SENTENCES = (
    "เมืองหลวงของประเทศ{country}คือกรุง{capital}",
    "กรุง{capital}เป็นเมืองหลวงของประเทศ{country}และมีประชากรมาก",
    "ประเทศ{country} มีเมืองหลวงชื่อ {capital} ซึ่งมีชื่อเสียงไปทั่วโลก",
)
QUESTIONS = ("เมืองหลวงของ{country}ชื่ออะไร", "{capital} อยู่ในประเทศอะไร")
#: Every other country is asked about.
ASKED = range(0, len(CAPITALS), 2)


def write(folder: Path) -> Path:
    """A sentence about each country, and questions each of which one sentence answers."""
    facts = [{"country": country, "capital": capital} for country, capital in CAPITALS.items()]
    documents = {f"d{n}": SENTENCES[n % len(SENTENCES)].format(**fact) for n, fact in enumerate(facts)}
    questions = {f"q{n}": QUESTIONS[n // 2 % len(QUESTIONS)].format(**facts[n]) for n in ASKED}
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", documents), ("queries", questions)):
        rows = [json.dumps({"_id": key, "text": text}) + "\n" for key, text in texts.items()]
        (folder / f"{name}.jsonl").write_text("".join(rows))
    (folder / "qrels" / "test.tsv").write_text(HEADER + "".join(f"q{n}\td{n}\t1\n" for n in ASKED))
    return folder


def test_a_thai_collection_stands_on_a_board_with_its_own_analyser(tmp_path: Path) -> None:
    folder = write(tmp_path / "thai")
    for slug, language in (("thai", "th"), ("thai-as-english", "en")):
        import_dataset(folder, ImportOptions(slug=slug, name=slug, language=language, hidden=False))
    create_requested_jobs()
    drain_queue("cpu", "test-worker")
    baselines = Entry.objects.filter(is_baseline=True).select_related("dataset")
    scores = {entry.dataset.slug: entry.scores["nDCG@10"] for entry in baselines}
    assert scores["thai"] > 0.9
    assert scores["thai-as-english"] < 0.3

    page = " ".join(Client().get("/datasets/thai/").content.decode().split())
    assert "<dt>Language</dt><dd>th</dd>" in page
    assert "words by ICU for Thai, no stop words" in page
    board = Client().get("/api/v1/datasets/thai/board/").json()
    assert [(row["system"], row["baseline"]) for row in board["rows"]] == [("BM25", True)]
    assert f"{scores['thai']:.3f}" in page
