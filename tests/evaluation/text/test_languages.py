# ruff: noqa: E501 -- a language is a line
"""Six sentences and five questions in each of 17 languages, those of MIRACL (Zhang et al., 2023) but Yoruba.

Each question is about the sentence of its place. Questions are inflected as speakers do, so that words seldom stand in
the sentence as they stand in the question.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluation.engines import InvalidParameter, Resources, RetrievalTask, describe, retrieve
from evaluation.text import CJK_LANGUAGES, DICTIONARY_LANGUAGES, SNOWBALL_LANGUAGES, analyser_for
from evaluation.text.languages import UnknownLanguage, language_code, language_name

PROBES = {
    "ar": (
        ["عاصمة مصر هي القاهرة وتقع على نهر النيل.", "يدور القمر حول الأرض في سبعة وعشرين يوما.", "اخترع ألكسندر بيل الهاتف في القرن التاسع عشر.",
         "تصنع الخبز من الدقيق والماء والملح.", "تعيش الجمال في الصحراء وتخزن الدهون في سنامها.", "تأسست الجامعة في المدينة القديمة عام ١٩٠٨."],
        ["ما هي عاصمة مصر؟", "كم يوما يحتاج القمر ليدور حول الأرض؟", "من الذي اخترع الهاتف؟", "مم يصنع الخبز؟", "أين تعيش الجمال؟"],
    ),
    "bn": (
        ["ঢাকা বাংলাদেশের রাজধানী এবং বুড়িগঙ্গা নদীর তীরে অবস্থিত।", "চাঁদ সাতাশ দিনে পৃথিবীর চারদিকে একবার ঘোরে।", "আলেকজান্ডার বেল টেলিফোন আবিষ্কার করেন।",
         "রুটি আটা, জল ও লবণ দিয়ে তৈরি হয়।", "উট মরুভূমিতে বাস করে।", "বিশ্ববিদ্যালয়টি ১৯২১ সালে প্রতিষ্ঠিত হয়।"],
        ["বাংলাদেশের রাজধানী কী?", "চাঁদ কত দিনে পৃথিবীর চারদিকে ঘোরে?", "টেলিফোন কে আবিষ্কার করেন?", "রুটি কী দিয়ে তৈরি হয়?", "উট কোথায় বাস করে?"],
    ),
    "de": (
        ["Die Hauptstadt Österreichs ist Wien an der Donau.", "Der Mond umkreist die Erde in siebenundzwanzig Tagen.", "Alexander Bell erfand im neunzehnten Jahrhundert das Telefon.",
         "Brot wird aus Mehl, Wasser und Salz gebacken.", "Kamele leben in der Wüste und speichern Fett im Höcker.", "Die Universität wurde 1365 in der Altstadt gegründet."],
        ["Wie heißt die Hauptstadt von Österreich?", "Wie lange braucht der Mond, um die Erde zu umkreisen?", "Wer hat das Telefon erfunden?", "Woraus bäckt man Brote?", "Wo lebt ein Kamel?"],
    ),
    "en": (
        ["The capital of Kenya is Nairobi, on the Athi river.", "The moon circles the earth in twenty-seven days.", "Alexander Bell invented the telephone in the nineteenth century.",
         "Bread is baked from flour, water and salt.", "Camels live in deserts and keep fat in their humps.", "The university was founded in the old town in 1209."],
        ["What is Kenya's capital?", "How many days does the moon need for circling the earth?", "Who was the inventor of telephones?", "What do bakers bake breads from?", "In which desert does a camel live?"],
    ),
    "es": (
        ["La capital de Perú es Lima, junto al océano Pacífico.", "La luna gira alrededor de la tierra en veintisiete días.", "Alexander Bell inventó el teléfono en el siglo diecinueve.",
         "El pan se hace con harina, agua y sal.", "Los camellos viven en el desierto y guardan grasa en la joroba.", "La universidad fue fundada en la ciudad vieja en 1551."],
        ["¿Cuál es la capital del Perú?", "¿En cuántos días da la luna un giro a la tierra?", "¿Quién fue el inventor de los teléfonos?", "¿Con qué harinas se hacen los panes?", "¿Dónde vive un camello?"],
    ),
    "fa": (
        ["تهران پایتخت ایران است و در دامنه البرز قرار دارد.", "ماه در بیست و هفت روز به دور زمین می‌گردد.", "الکساندر بل تلفن را در قرن نوزدهم اختراع کرد.",
         "نان از آرد و آب و نمک پخته می‌شود.", "شترها در بیابان زندگی می‌کنند.", "دانشگاه در سال ۱۳۱۳ تأسیس شد."],
        ["پایتخت ایران کجاست؟", "ماه در چند روز به دور زمین می‌گردد؟", "چه کسی تلفن را اختراع کرد؟", "نان از چه پخته می‌شود؟", "شتر در کدام بیابان زندگی می‌کند؟"],
    ),
    "fi": (
        ["Suomen pääkaupunki on Helsinki Suomenlahden rannalla.", "Kuu kiertää maapallon kahdessakymmenessäseitsemässä päivässä.", "Alexander Bell keksi puhelimen.",
         "Leipä leivotaan jauhoista, vedestä ja suolasta.", "Kamelit elävät aavikolla ja varastoivat rasvaa kyttyrään.", "Yliopisto perustettiin vanhaankaupunkiin vuonna 1640."],
        ["Mikä on Suomen pääkaupungin nimi?", "Monessako päivässä kuu kiertää maapallon?", "Kuka keksi puhelimet?", "Mistä leivät leivotaan?", "Missä kameli elää?"],
    ),
    "fr": (
        ["La capitale du Portugal est Lisbonne, au bord du Tage.", "La lune tourne autour de la terre en vingt-sept jours.", "Alexander Bell inventa le téléphone au dix-neuvième siècle.",
         "Le pain est fait de farine, d'eau et de sel.", "Les chameaux vivent dans le désert et gardent de la graisse dans leurs bosses.", "L'université fut fondée dans la vieille ville en 1150."],
        ["Quelle est la capitale portugaise ?", "En combien de jours la lune tourne-t-elle autour de la terre ?", "Qui a inventé les téléphones ?", "Avec quelles farines fait-on les pains ?", "Dans quels déserts vit le chameau ?"],
    ),
    "hi": (
        ["भारत की राजधानी नई दिल्ली यमुना नदी के किनारे है।", "चंद्रमा सत्ताईस दिनों में पृथ्वी का चक्कर लगाता है।", "अलेक्जेंडर बेल ने टेलीफोन का आविष्कार किया।",
         "रोटी आटे, पानी और नमक से बनती है।", "ऊँट रेगिस्तान में रहते हैं।", "विश्वविद्यालय की स्थापना १९२२ में हुई।"],
        ["भारत की राजधानी कौन सी है?", "चंद्रमा पृथ्वी का चक्कर कितने दिन में लगाता है?", "टेलीफोन के आविष्कारक कौन थे?", "रोटियाँ किस आटे से बनती हैं?", "ऊँट किस रेगिस्तान में रहता है?"],
    ),
    "id": (
        ["Ibu kota Indonesia adalah Jakarta di pulau Jawa.", "Bulan mengelilingi bumi dalam dua puluh tujuh hari.", "Alexander Bell menemukan telepon pada abad kesembilan belas.",
         "Roti dibuat dari tepung, air dan garam.", "Unta hidup di gurun dan menyimpan lemak di punuknya.", "Universitas itu didirikan di kota tua pada tahun 1949."],
        ["Apa ibu kota Indonesia?", "Berapa hari bulan mengelilingi bumi?", "Siapa penemu telepon?", "Tepung apa yang dipakai membuat roti?", "Di gurun mana unta hidup?"],
    ),
    "ja": (
        ["日本の首都は東京で、東京湾に面している。", "月は二十七日で地球を一周する。", "アレクサンダー・ベルは十九世紀に電話を発明した。",
         "パンは小麦粉と水と塩から作られる。", "ラクダは砂漠に住み、こぶに脂肪を蓄える。", "大学は1877年に旧市街に設立された。"],
        ["日本の首都はどこですか", "月は何日で地球を回りますか", "電話を発明したのは誰ですか", "パンは何から作りますか", "ラクダはどこに住んでいますか"],
    ),
    "ko": (
        ["대한민국의 수도는 서울이며 한강이 흐른다.", "달은 이십칠 일 만에 지구를 한 바퀴 돈다.", "알렉산더 벨은 십구 세기에 전화기를 발명하였다.",
         "빵은 밀가루와 물과 소금으로 만든다.", "낙타는 사막에서 살며 혹에 지방을 저장한다.", "대학교는 1946년에 구시가지에 세워졌다."],
        ["대한민국 수도가 어디인가요?", "달이 지구를 도는 데 며칠이 걸리나요?", "전화기의 발명가는 누구인가요?", "빵을 만드는 밀가루는 무엇인가요?", "낙타가 사는 사막은 어디인가요?"],
    ),
    "ru": (
        ["Столица Грузии — Тбилиси на реке Куре.", "Луна обходит Землю за двадцать семь дней.", "Александр Белл изобрёл телефон в девятнадцатом веке.",
         "Хлеб пекут из муки, воды и соли.", "Верблюды живут в пустыне и хранят жир в горбах.", "Университет был основан в старом городе в 1755 году."],
        ["Как называется столица в Грузии?", "За сколько дней Луну обходит вокруг Земли?", "Кто был изобретателем телефонов?", "Из какой муки пекли хлеба?", "В каких пустынях живёт верблюд?"],
    ),
    "sw": (
        ["Mji mkuu wa Tanzania ni Dodoma.", "Mwezi huzunguka dunia kwa siku ishirini na saba.", "Alexander Bell alivumbua simu katika karne ya kumi na tisa.",
         "Mkate hutengenezwa kwa unga, maji na chumvi.", "Ngamia huishi jangwani na kuhifadhi mafuta kwenye nundu.", "Chuo kikuu kilianzishwa mwaka 1970."],
        ["Mji mkuu wa Tanzania ni upi?", "Mwezi huzunguka dunia kwa siku ngapi?", "Nani alivumbua simu?", "Mkate hutengenezwa kwa nini?", "Ngamia huishi wapi?"],
    ),
    "te": (
        ["తెలంగాణ రాజధాని హైదరాబాద్ మూసీ నది ఒడ్డున ఉంది.", "చంద్రుడు ఇరవై ఏడు రోజుల్లో భూమి చుట్టూ తిరుగుతాడు.", "అలెగ్జాండర్ బెల్ టెలిఫోన్ కనిపెట్టాడు.",
         "రొట్టె పిండి, నీరు, ఉప్పుతో తయారవుతుంది.", "ఒంటెలు ఎడారిలో నివసిస్తాయి.", "విశ్వవిద్యాలయం 1918 లో స్థాపించబడింది."],
        ["తెలంగాణ రాజధాని ఏది?", "చంద్రుడు భూమి చుట్టూ ఎన్ని రోజుల్లో తిరుగుతాడు?", "టెలిఫోన్ ఎవరు కనిపెట్టారు?", "రొట్టె దేనితో తయారవుతుంది?", "ఒంటెలు ఎక్కడ నివసిస్తాయి?"],
    ),
    "th": (
        ["เมืองหลวงของประเทศไทยคือกรุงเทพมหานครริมแม่น้ำเจ้าพระยา", "ดวงจันทร์โคจรรอบโลกในเวลายี่สิบเจ็ดวัน", "อเล็กซานเดอร์ เบลล์ประดิษฐ์โทรศัพท์ในศตวรรษที่สิบเก้า",
         "ขนมปังทำจากแป้ง น้ำ และเกลือ", "อูฐอาศัยอยู่ในทะเลทรายและเก็บไขมันไว้ในโหนก", "มหาวิทยาลัยก่อตั้งขึ้นในเมืองเก่าเมื่อปี ๒๔๖๐"],
        ["เมืองหลวงของไทยชื่ออะไร", "ดวงจันทร์ใช้เวลากี่วันโคจรรอบโลก", "ใครเป็นผู้ประดิษฐ์โทรศัพท์", "ขนมปังทำจากอะไร", "อูฐอาศัยอยู่ที่ไหน"],
    ),
    "zh": (
        ["中国的首都是北京,位于华北平原。", "月球绕地球一周需要二十七天。", "亚历山大·贝尔在十九世纪发明了电话。",
         "面包是用面粉、水和盐做成的。", "骆驼生活在沙漠里,驼峰储存脂肪。", "这所大学于1898年在老城建立。"],
        ["中国首都在哪里?", "月球绕地球要多少天?", "谁是电话的发明者?", "面包用什么面粉做?", "什么沙漠里有骆驼?"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("language", PROBES)
def test_bm25_finds_the_sentence_that_a_question_is_about(language: str, tmp_path: Path) -> None:
    sentences, questions = PROBES[language]
    for name, texts in (("corpus", sentences), ("queries", questions)):
        rows = [json.dumps({"_id": str(number), "text": text}) for number, text in enumerate(texts)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    out = tmp_path / "run.txt"
    retrieve(
        RetrievalTask(
            "bm25",
            tmp_path / "corpus.jsonl",
            tmp_path / "queries.jsonl",
            out,
            resources=Resources(language=language),
        )
    )
    first = [line.split() for line in out.read_text().splitlines() if line.split()[3] == "1"]
    assert sum(query == document for query, _, document, *_ in first) >= 4, first


def test_pairs_of_characters_cross_scripts_and_stop_at_others() -> None:
    assert analyser_for("ja")("東京タワーは333m") == ["東京", "京タ", "タワ", "ワー", "ーは", "333m"]
    assert analyser_for("zh-Hant")("我, 信息 ＡＢＣ") == ["我", "信息", "abc"]
    assert analyser_for("ko")("한국어는 좋다") == ["한국", "국어", "어는", "좋다"]


def test_a_dictionary_cuts_what_has_no_blanks_and_leaves_the_rest() -> None:
    thai = analyser_for("th")
    assert thai("ภาษาไทยสวยงาม IR ๒๕๖๗") == ["ภาษา", "ไทย", "สวยงาม", "ir", "2567"]
    assert analyser_for("lo")("ພາສາລາວງາມ") == ["ພາສາ", "ລາວ", "ງາມ"]


def test_arabic_letters_that_are_written_in_several_ways_are_one() -> None:
    arabic = analyser_for("ar", stemming=False)
    assert arabic("أَحْمَد إلـى مدرسة ٢٠٢٤") == arabic("احمد الي مدرسه 2024")


def test_stop_words_are_snowballs_where_it_has_a_list() -> None:
    listed = {language for language in SNOWBALL_LANGUAGES if analyser_for(language).stop_words}
    assert listed == {"da", "nl", "fi", "fr", "de", "hu", "it", "no", "pt", "ru", "es", "sv", "tr"}
    assert analyser_for("de")("das Haus und die Häuser") == ["haus", "haus"]
    assert analyser_for("ru")("мир и война") == ["мир", "войн"]
    assert "231 stop words" in analyser_for("de").description


@pytest.mark.parametrize(
    ("code", "spellings"),
    [
        ("en", ("en", "eng", "eng-Latn", "en-US", "en_GB", "en_US.UTF-8", "english", "English", "ENGLISH", " en ")),
        ("de", ("de", "deu", "ger", "deu-Latn", "de-AT", "de_DE@euro", "German")),
        ("fr", ("fr", "fra", "fre", "fra-Latn", "fr-CA", "french")),
        ("zh", ("zh", "zho", "chi", "cmn", "zh-Hans", "zho-Hans", "zh_TW", "zh-Hant-HK", "Chinese", "Mandarin")),
        ("pt", ("pt", "por", "pt_BR", "por-Latn", "Portuguese")),
        ("ar", ("ar", "ara", "arb", "arb-Arab", "ara-Arab", "Arabic")),
        ("fa", ("fa", "fas", "per", "pes", "fas-Arab", "Persian", "farsi")),
        ("no", ("no", "nor", "nb", "nob", "nn", "nno-Latn", "Norwegian")),
        ("sw", ("sw", "swa", "swh", "swh-Latn", "Swahili")),
        ("ga", ("ga", "gle", "Irish")),
        ("el", ("el", "ell", "gre", "Greek", "modern greek")),
        ("es", ("es", "spa", "es-419", "Spanish", "castilian")),
        ("yue", ("yue", "zh-yue", "yue-Hant", "Cantonese")),
        ("ceb", ("ceb", "ceb-Latn", "Cebuano")),
        ("aab", ("aab",)),
    ],
)  # fmt: skip
def test_spellings_of_a_language_have_one_code(code: str, spellings: tuple[str, ...]) -> None:
    assert {language_code(spelling) for spelling in spellings} == {code}
    assert {analyser_for(spelling).name for spelling in spellings} == {analyser_for(code).name}


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("englsh", "Did you mean en (English)"), ("Germn", "Did you mean de (German)?"), ("xx", "Did you mean xh (Xhosa)"),
        ("english-Latn", "Did you mean en (English)"), ("jp", " ja "), ("", "such as en or deu"),
        ("python-Code", "such as en or deu"), ("en-", "such as en or deu"), ("e\0n", "such as en or deu"),
    ],
)  # fmt: skip
def test_an_unknown_language_is_refused_with_a_suggestion(text: str, suggestion: str) -> None:
    with pytest.raises(UnknownLanguage) as refused:
        language_code(text)
    assert suggestion in str(refused.value)
    assert f"“{text}” is neither the code nor the English name of a language." in str(refused.value)


def test_every_analyzer_has_a_name_in_the_table() -> None:
    for code in (*SNOWBALL_LANGUAGES, *CJK_LANGUAGES, *DICTIONARY_LANGUAGES):
        assert language_code(code) == code
        assert language_name(code) in analyser_for(code).name
        assert analyser_for(code).remark == ""


def test_a_language_without_an_analyzer_says_so() -> None:
    swahili = analyser_for("swh")
    assert swahili.name == "Swahili, no analyzer"
    assert swahili.remark.startswith("There is no analyzer for Swahili: BM25 compares lowercased words")
    assert swahili("Mji Mkuu") == ["mji", "mkuu"]


def test_the_engines_parameter_takes_every_spelling() -> None:
    description = describe("bm25")
    assert description.complete({"language": "eng-Latn"})["language"] == "en"
    assert description.complete({})["language"] == "auto"
    with pytest.raises(InvalidParameter, match=r"language = 'englsh' is not valid.*Did you mean en"):
        description.complete({"language": "englsh"})
