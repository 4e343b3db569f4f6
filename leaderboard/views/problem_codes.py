"""Every problem that a report or a refusal may name, for the page of formats: what it means, what would be right."""

from __future__ import annotations

from typing import NamedTuple

from evaluation.checkpoints.codes import CODES
from evaluation.execution.failures import MODEL_FAILURES


class ProblemCode(NamedTuple):
    """One row. `example` is a line, or a few words, that shows it."""

    code: str
    severity: str
    meaning: str
    remedy: str
    example: str = ""


#: What may be wrong with a run file.
FILE_CODES = (
    ProblemCode("fields", "error", "A line without exactly six fields.", "“query Q0 document rank score tag”, "
                "separated by spaces or tabs; ids have no white space.", "q1 Q0 d17 1 12.75"),
    ProblemCode("encoding", "error", "A line that is not UTF-8, has a NUL byte, or a file whose lines end in CR alone.",
                "Save as UTF-8; end lines with LF or CR LF.", "q1 Q0 d\\xff 1 12.75 mine"),
    ProblemCode("score", "error", "A score that is not a finite number in single precision.",
                "ASCII digits such as 12.75, -3 or 1.5e-7, below 3.4e38; no nan, inf or thousands separators.",
                "q1 Q0 d17 1 nan mine"),
    ProblemCode("duplicate", "error", "A document that its query has already.",
                "Each document once per query; keep the line with the best score.",
                "q1 Q0 d17 1 9.1 mine … q1 Q0 d17 2 8.4 mine"),
    ProblemCode("no_known_query", "error", "None of the run's queries is in the dataset.",
                "Choose the dataset that the run is for; write query ids as in its queries file.", "Q001 instead of 1"),
    ProblemCode("unknown_documents", "error or warning", "Documents that the dataset does not have. A few are let "
                "pass and count as not relevant; above 5 % of the lines the file is refused.",
                "Make the run from this version of the corpus.", "q1 Q0 no-such-id 1 9.1 mine"),
    ProblemCode("empty", "error", "The file has no lines.", "Check that the right file was chosen."),
    ProblemCode("size", "error", "The file, or its number of queries, is over a limit.",
                "At most 1,000 documents a query are scored: leave out the rest, or split the run by dataset."),
    ProblemCode("expansion", "error", "The compressed file expands to more than a run plausibly does.",
                "Real runs shrink by a factor of 3 to 7; send this one plain."),
    ProblemCode("compression", "error", "The compressed file is damaged, compressed twice, or in a way that is not "
                "read here.", "One of .gz, .zst, .bz2, once; or a .zip with the usual method, deflate."),
    ProblemCode("line_length", "error", "A line is longer than any run's.", "One line per document, see above."),
    ProblemCode("identifier", "error", "An id is too long, empty, or has white space.",
                "Use the ids of the dataset's files."),
    ProblemCode("query_size", "error", "One query has more lines than can be held together.",
                "At most 1,000 documents a query are scored: leave out the rest."),
    ProblemCode("ungrouped", "error", "The lines of a query are not together, and the file is too large to sort here.",
                "sort -s -k1,1 run.txt"),
    ProblemCode("json", "error", "An MTEB predictions file that is not JSON of the form above.",
                "See MTEB predictions above."),
    ProblemCode("judged_queries_missing", "warning", "Judged queries that the run does not have: they score 0.",
                "Retrieve documents for every query. (Said for open judgements only.)"),
    ProblemCode("queries_missing", "warning", "Queries of the dataset that the run does not have; those that are "
                "judged score 0.", "Retrieve documents for every query."),
    ProblemCode("unknown_queries", "warning", "Queries that are not among the dataset's queries to answer: ignored.",
                "Nothing to do, if the run was made for a larger set."),
    ProblemCode("depth", "warning", "More than 1,000 documents for a query: the best 1,000 by score are kept.",
                "Nothing to do."),
    ProblemCode("rank_order", "warning", "Ranks that disagree with the scores. Ranks are ignored.",
                "Check that a higher score means a better document.", "q1 Q0 d17 2 9.1 mine · q1 Q0 d18 1 8.4 mine"),
    ProblemCode("ties", "warning", "Many equal scores within a query, in single precision.",
                "Write scores with more digits, so that your own order decides."),
    ProblemCode("several_tags", "warning", "More than one tag in the last column.", "Check that files were not mixed."),
)  # fmt: skip

#: What may be wrong with a request: a zip, which file is for which dataset, the system.
REQUEST_CODES = (
    ProblemCode("invalid_run", "error", "At least one of the files cannot be scored, so none was taken.",
                "Each file's problems follow."),
    ProblemCode("already_submitted", "error", "The system has the same run on this dataset already, under the same "
                "label.", "Nothing to do. If it is another configuration, label it."),
    ProblemCode("round_not_open", "error", "A round of the dataset is announced and has not opened.",
                "Send it from the opening on; the round's page says when, in UTC."),
    ProblemCode("round_closed", "error", "The round has closed, and takes no late runs or changes of priority.",
                "After the reveal runs are taken again, outside of the round."),
    ProblemCode("rounds_differ", "error", "The datasets of one submission are in different rounds, or some in none.",
                "Send what is for one round in one submission."),
    ProblemCode("round_full", "error", "The team has sent as many runs as the round takes of each.",
                "Withdraw one before the round closes."),
    ProblemCode("run_type_needed", "error", "The round asks whether the run is automatic or manual.",
                "Send run_type=automatic, or manual where somebody had a hand in queries or ranking."),
    ProblemCode("tag_needed", "error", "The round asks for a run tag, and neither request nor file has a usable one.",
                "Send tag=…, or write it as the last field of each line."),
    ProblemCode("invalid_tag", "error", "The run tag has characters that it may not have, or too many.",
                "1 to 24 letters, digits, dots, hyphens and underscores."),
    ProblemCode("tag_taken", "error", "The team has a run with this tag in the round.", "Send another tag=…."),
    ProblemCode("invalid_priority", "error", "The priority is no place among the team's runs.",
                "A whole number from 1 to the runs that the round takes of a team."),
    ProblemCode("priority_taken", "error", "Another run of the team has this priority.",
                "Choose another, or change that one's first."),
    ProblemCode("label_needed", "error", "The system has a result on this dataset under the same label already, from "
                "another run, another engine or other parameters.", "Label this one, or withdraw the other first; "
                "send runs that differ by their seed together.",
                "-F configuration=\"k1 1.2\""),
    ProblemCode("unknown_upload", "error", "You have no upload of this id: a submission took it, or it was deleted, or "
                "given up a day after its last bytes.", "Send the file again.", "-F upload=ID"),
    ProblemCode("unfinished_upload", "error", "The upload is not whole.", "Send the rest, then submit it."),
    ProblemCode("wrong_upload_kind", "error", "A checkpoint was uploaded for a run, or a run for a checkpoint.",
                "Say kind run or model in Upload-Metadata."),
    ProblemCode("upload_in_use", "error", "The upload is being written, or another submission takes it.",
                "Wait for that one to end; if it is refused, the upload stays."),
    ProblemCode("upload_twice", "error", "One request names the same upload more than once.", "Name each once."),
    ProblemCode("upload_too_large", "error", "The file is over the limit for its kind, or longer than was announced.",
                "512 MiB for runs, 2 GiB for checkpoints, unless the site's operator says otherwise."),
    ProblemCode("too_many_pieces", "error", "You send as many pieces at once as you may, or the site takes no more.",
                "Send it again in a few seconds; clients of tus do so by themselves."),
    ProblemCode("too_many_uploads", "error", "You have many uploads here that no submission has taken.",
                "Submit or delete them; each is given up a day after its last bytes."),
    ProblemCode("upload_offset", "error", "The upload is elsewhere than where these bytes begin.",
                "Ask with HEAD how far it is.", "Upload-Offset: 1048576"),
    ProblemCode("upload_expired", "error", "No bytes came for a day, so the upload was given up.", "Begin another."),
    ProblemCode("upload_checksum", "error", "The bytes are not those of Upload-Checksum, or it cannot be tested.",
                "sha1 or sha256, a blank, and the digest in base64."),
    ProblemCode("upload_header", "error", "A header of an upload is missing, or is no number of bytes.",
                "Send Upload-Length to begin, Upload-Offset to go on.", "Upload-Length: 1048576"),
    ProblemCode("upload_metadata", "error", "Upload-Metadata is not made of keys with values in base64.",
                "Pairs with commas between them.", "filename cnVuLnR4dA==,kind cnVu"),
    ProblemCode("upload_kind", "error", "Upload-Metadata names no kind of file.", "run or model."),
    ProblemCode("content_type", "error", "The body of an upload is no piece of a file.",
                "Send the bytes as they are.", "Content-Type: application/offset+octet-stream"),
    ProblemCode("tus_version", "error", "The request does not say that it speaks tus 1.0.0.",
                "Send the header with every request.", "Tus-Resumable: 1.0.0"),
    ProblemCode("no_file", "error", "No run file was sent.", "Choose at least one file.", "-F file=@run.txt.gz"),
    ProblemCode("too_many_files", "error", "More run files than one submission, or one zip, may have.",
                "Send at most 64, those in zips counted."),
    ProblemCode("pairing", "error", "Files and datasets do not pair.", "As many datasets as files, in the same order; "
                "only a zip names its files by itself.", "-F dataset=nfcorpus -F file=@run.txt"),
    ProblemCode("unknown_dataset", "error", "A dataset, said or taken from the file's name, that does not take runs "
                "here.", "Say dataset=… as its address has it, or name the file after it.", "nfcorpus.txt.gz"),
    ProblemCode("too_many_seeds", "error", "More than five files for one dataset: several are seeds of one system.",
                "Send five at most."),
    ProblemCode("seed_labels", "error", "Labels of seeds, and not one for each file that is a seed.",
                "As many labels as files, in the same order, or none: then the files' names tell.",
                "-F dataset=nfcorpus -F file=@a.txt -F file=@b.txt -F seed=1,2"),
    ProblemCode("seed_label", "error", "A seed's label is longer than 80 characters, or has some that nobody sees.",
                "A short label.", "-F seed=42"),
    ProblemCode("seed_label_twice", "error", "Two seeds of one dataset with the same label.",
                "Label each differently."),
    ProblemCode("same_run_twice", "error", "Two seeds of one dataset that are the same run.",
                "Send each run once; if two came out alike, look at how they were made."),
    ProblemCode("member_name", "error", "A file in the zip is there twice, or its name is no plain relative path.",
                "Pack every file once, as <dataset>.txt.", "../nfcorpus.txt"),
    ProblemCode("member_kind", "error", "A file in the zip is encrypted, a link or a device.",
                "Pack regular files without a password."),
    ProblemCode("system_name_taken", "error", "A new system with the name of one that your team has.",
                "Choose that one, or give the new one another name."),
    ProblemCode("unknown_team", "error", "A new system for a team that you do not belong to.",
                "Choose one of your teams, or leave the team out: it is your first one then."),
    ProblemCode("anonymity", "error", "A system that cannot be anonymous until the day that was asked for.",
                "Choose a day after today, nine months away at the most."),
    ProblemCode("request_too_large", "error", "The request as a whole is over the limit for uploads.",
                "Compress the runs, or submit fewer at a time."),
    ProblemCode("too_large_to_check_at_once", "warning", "The file is too large to be checked while you wait.",
                "Submit it, and a worker checks it; or check it on your own machine, as above."),
    ProblemCode("one_file", "error", "Several files were sent to be checked.", "The API checks one file at a time."),
    ProblemCode("sandbox_unavailable", "error", "Models cannot be run here now: no worker has a sandbox that works.",
                "The message says why; the operator installs what it names."),
    ProblemCode("invalid_checkpoint", "error", "The checkpoint cannot be run here.", "Each finding follows."),
    ProblemCode("busy", "error", "As many checkpoints are being checked as the site checks at once.",
                "Nothing is wrong with yours. Send it again after the seconds that the message, or Retry-After, says."),
    ProblemCode("no_checkpoint", "error", "The engine runs a model, and none was given.",
                "Upload an archive, or name one sent before.", "-F checkpoint=@model.zip"),
    ProblemCode("checkpoint_not_wanted", "error", "The engine runs no model, and one was given.",
                "Leave it out, or choose the engine that runs it."),
    ProblemCode("gpu_not_wanted", "error", "A GPU was asked for, and the engine has no use for one.",
                "Leave the device out, or say cpu."),
    ProblemCode("no_gpu", "error", "A GPU was asked for, and no worker with one was there within a day.",
                "Leave the device out, or say auto or cpu."),
    ProblemCode("several_models", "error", "More than one model was given.", "Upload, choose or name one."),
    ProblemCode("unknown_checkpoint", "error", "Your team has sent no such checkpoint.",
                "The message lists those that it has."),
    ProblemCode("wrong_checkpoint_kind", "error", "A good checkpoint, which the chosen engine does not run.",
                "Choose the engine that runs it."),
    ProblemCode("hub_downloads_off", "error", "This site fetches no models from the hub.",
                "Upload the checkpoint as an archive."),
    ProblemCode("hub_name", "error", "Not the name of a model on the hub.", "owner/name",
                "sentence-transformers/all-MiniLM-L6-v2"),
    ProblemCode("hub_commit", "error", "Not a commit: a branch or tag may point elsewhere tomorrow.",
                "All 40 hexadecimal digits."),
    ProblemCode("no_engine", "error", "A model without the engine that is to run it.", "Name one of those listed.",
                "-F engine=dense"),
    ProblemCode("unknown_engine", "error", "There is no engine of this name.", "Name one of those listed."),
    ProblemCode("invalid_parameters", "error", "A parameter that the engine does not have, or a value that it does "
                "not take.", "The message says what it takes.", "k1=0.9, b=0.4"),
    ProblemCode("architecture_mismatch", "error", "The system is said to be of another architecture than the engine.",
                "Choose the engine of its architecture, or submit as another system."),
    ProblemCode("no_dataset", "error", "No dataset was chosen.", "Choose at least one, or a whole benchmark."),
    ProblemCode("dataset_or_benchmark", "error", "Datasets and a benchmark were both named.", "Name either."),
    ProblemCode("empty_benchmark", "error", "No benchmark of this name has a dataset that models can be run on.",
                "The message lists those that have one."),
    ProblemCode("no_corpus", "error", "The dataset's documents are not kept here, so no model can be run over them.",
                "Run it yourself and submit the run file."),
    ProblemCode("number_of_runs", "error", "The engine takes fewer or more runs to build on.",
                "The message says how many."),
    ProblemCode("run_twice", "error", "The same run was named twice.", "Name each run once."),
    ProblemCode("no_usable_run", "error", "There is no run of this name on the dataset that your team may build on.",
                "Your own, the site's, or one whose owner lets others build on it."),
    ProblemCode("few_queries", "error", "A run to build on that names too few queries of a dataset with hidden "
                "judgements.", "One that names at least 90 % of its queries, or the site's own BM25."),
    ProblemCode("quota", "error", "You or your team have used the submissions that a dataset with hidden judgements "
                "takes in a day or month, or your team its runs of models for today.",
                "The message says when counting begins anew."),
    ProblemCode("team_not_approved", "error", "The dataset's judgements are hidden, and a curator approves a team "
                "before it first submits to such a dataset. Nothing was counted.",
                "Ask whoever runs the site to approve your team. Datasets with open judgements take its submissions."),
    ProblemCode("challenge_refused", "error", "The system cannot be challenged so: it was already, or by its own team, "
                "or the text is missing.", "The message says what would be right."),
    ProblemCode("too_many_refusals", "error", "Many of your files for hidden datasets were refused today; only so many "
                "cost nothing.", "Check files first, which is never counted."),
    ProblemCode("missing_scope", "error", "The token may not be used for this call.",
                "Make one with the scope that the message names, on your account page."),
    ProblemCode("no_tokens", "error", "The call takes no tokens.", "Use it signed in."),
    ProblemCode("invalid", "error", "The request is not well formed.", "The sentence beside it says where."),
    ProblemCode("invalid_…", "error", "A field is missing or cannot be read; the code ends in its name.",
                "The API's documentation lists the fields.", "invalid_architecture"),
)  # fmt: skip

_EXPLAINED = {each.code for each in (*FILE_CODES, *REQUEST_CODES)}
#: What may be wrong with a checkpoint, by code what would be accepted; explained where it is found.
CHECKPOINT_CODES = tuple((code, accepted) for code, accepted in CODES.items() if code not in _EXPLAINED)
#: How a model may fail that passed.
MODEL_FAILURE_CODES = tuple(
    ProblemCode(code, "error", text.meaning, text.remedy)
    for code, text in MODEL_FAILURES.items()
    if code not in CODES
)
