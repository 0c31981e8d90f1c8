"""Each limit of the grader: its sentence, and that what exceeds it does no harm."""

import io
import json
import os
import random
import re
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from rich.console import Console

from grading import classroom, grade, report, score, similar, submissions
from grading.errors import InputError
from grading.jail import choice
from grading.lms import canvas, canvas_submissions
from grading.report import Graded, Result
from grading.source import answers, holes, labs, notebook
from grading.source.holes import Answer
from grading.submissions import Submission
from grading.worker import session
from grading.worker.client import WorkerClient
from grading.worker.errors import WorkerEnded
from grading.worker.fork_server import ForkServer
from grading.worker.session import Session
from grading.worker.transport import Frame, WireError
from tests.mini_lab import mini_lab

MINI = mini_lab()
SOLUTION = {name: Answer(text) for name, text in MINI.solution.items()}
COUNT = int(os.environ.get("FUZZ", 1000))


@pytest.fixture(scope="module")
def fork_server():
    server = ForkServer(bare=True)
    yield server
    server.close()


def test_a_message_is_cut_and_its_control_characters_are_shown():
    result = Result("1.1 f", 0, 1, "failed", "head \x1b[2J" + "x" * 10**6 + " tail")
    assert len(result.message) < report.MAX_MESSAGE + 50
    assert result.message.startswith(r"head \x1b[2J") and result.message.endswith(" tail")
    assert "characters left out" in result.message


def test_a_cell_of_more_than_a_million_characters_is_refused_unparsed():
    text = "def double(x):\n    return 2 * x\n" + "x\n" * 10**6
    assert holes.syntax_problem(text) == (
        "The cell has 2.0 million characters; at most 1 are allowed."
    )
    answer = answers.find(MINI, [answers.StudentCell("code", text)])["double"]
    assert (answer.text, answer.status) == (None, "error")


def test_a_message_quotes_a_hundred_characters_of_a_line():
    assert len(holes.syntax_problem("double = '" + "x" * 10_000)) < 300


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("ada", "ada"),
        ("Ada Lovelace (1)", "Ada Lovelace (1)"),
        ("Zoë", "Zoë"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x1b]0;pwned\x07", r"\x1b]0;pwned\x07"),
        (os.fsdecode(b"Andr\xe9"), "Andr"),
        ("a" * 245, "a" * 49),
    ],
)
def test_a_name_is_shown_as_text_cut_and_still_its_own(name, wanted):
    text = submissions.shown(name)
    assert text.startswith(wanted) and len(text) <= submissions.MAX_NAME
    text.encode()
    assert text.isprintable()
    assert (text == name) == (name == wanted)


def test_names_by_the_thousand_stay_different_and_can_be_written(tmp_path):
    rng, shown = random.Random(0), {}
    for _ in range(COUNT):
        raw = bytes(rng.choice(b"a\xe9\x1b\xff\xc3 \t.;[") for _ in range(rng.randint(1, 200)))
        name = os.fsdecode(raw)
        text = submissions.shown(name)
        assert shown.setdefault(text, name) == name
        assert len(text) <= submissions.MAX_NAME and text.isprintable() and text.encode()


def test_a_folder_with_an_odd_name_is_graded(tmp_path):
    for name in (b"Andr\xe9", b"\x1b[2J", b"b" * 245):
        folder = os.path.join(os.fsencode(tmp_path), name)
        os.mkdir(folder)
        with open(os.path.join(folder, f"{labs.names()[0]}.ipynb".encode()), "w") as file:
            file.write("{}")
    found, _ = submissions.find(tmp_path)
    rows = [row for one in found for row in report.rows(one.student, one.lab, [])]
    assert len({one.student for one in found}) == 3 and not rows


def test_a_time_in_a_name_counts_only_if_asked_for(tmp_path):
    name = labs.names()[0]
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada" / f"{name} 2020-01-01 00-00.ipynb").write_text("{}")
    due = {name: submissions.datetime(2020, 6, 1).timestamp()}
    (one,), _ = submissions.find(tmp_path, due)
    assert (one.late_s or 0) > 10**6 and one.claims == "2020-01-01 00:00"
    (one,), _ = submissions.find(tmp_path, due, times="names")
    assert one.late_s == 0 and not one.claims


def limited(code, megabytes):
    text = f"""
import sys
from grading.jail.usage import limit_memory
limit_memory({megabytes} << 20)
try:
    {code}
except MemoryError:
    sys.exit(3)
"""
    return subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=600).returncode


def test_a_process_of_the_grader_gets_a_memory_error():
    assert limited("bytearray(200 << 20)", 100) == 3
    assert limited("bytearray(50 << 20)", 100) == 0
    total = (classroom.READER_BYTES, classroom.GRADER_BYTES)
    assert total[0] <= 2 << 30 and total[1] <= 4 << 30


def test_a_notebook_that_needs_too_much_memory_to_read_has_a_sentence(tmp_path, monkeypatch):
    def greedy(*_):
        raise MemoryError

    monkeypatch.setattr(notebook, "read_answers", greedy)
    one = Submission("ada", labs.names()[0], tmp_path / "x.ipynb")
    assert classroom.read(one) == classroom.TOO_LARGE


@pytest.mark.slow
def test_the_fork_server_has_its_own_limit(fork_server):
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (64 << 30, before[1]))
    try:
        other = ForkServer(bare=True)
        WorkerClient(other).end()
        assert other.process
        assert resource.prlimit(other.process.pid, resource.RLIMIT_AS)[0] == before[1]
        other.close()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _may_set_the_least_score():
    """Whether what this user sets is also the least that a process may set itself: Linux asks for
    CAP_SYS_RESOURCE, which root has unless it was taken away."""
    held = re.search(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return bool(held and int(held[1], 16) >> 24 & 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
def test_a_worker_can_t_take_back_its_out_of_memory_score(name):
    if problem := choice.JAILS[name].problem():
        pytest.skip(f"there is no {name} here: {problem}")
    if name == "bubblewrap" and not _may_set_the_least_score():
        pytest.skip("this user lacks CAP_SYS_RESOURCE: Linux lets a process take its score back")
    cell = """
def score_after(number):
    try:
        open("/proc/self/oom_score_adj", "w").write(number)
    except OSError:
        pass
    return open("/proc/self/oom_score_adj").read().strip()
"""
    server = ForkServer(jail=choice.JAILS[name], bare=True)
    one = Session(server, [("cell", cell)])
    one.allow(30)
    try:
        assert [one.call("score_after", (n,)) for n in ("0", "999", "-1000")] == ["1000"] * 3
    finally:
        one.close()
        server.close()


@pytest.mark.slow
def test_the_cells_of_a_notebook_have_a_time_together(fork_server, monkeypatch):
    monkeypatch.setattr(session, "CELLS_S", 0.5)
    slow = "import time\ntime.sleep(1)\ndef double(x):\n    return 2 * x"
    results = score.score(MINI, SOLUTION | {"double": Answer(slow)}, fork_server)
    late = [result for result in results if "the cells of this notebook took" in result.message]
    assert late and all(result.status == "timeout" for result in late), results


def test_a_slow_cell_is_not_executed_again(fork_server, monkeypatch):
    """So the other exercises keep their points when a worker has ended."""
    monkeypatch.setattr(session, "SLOW_S", 0.3)
    monkeypatch.setattr(session, "CELLS_S", 3.0)
    slow = "import time\ntime.sleep(1)\ndef sleepy():\n    return 1"
    ends = "import os\ndef ends():\n    os._exit(1)"
    one = session.Session(fork_server, [("slow", slow), ("ends", ends), ("f", "def f(): return 7")])
    one.allow(60)
    try:
        assert one.call("sleepy") == 1
        for _ in range(5):  # each time in a new worker: 5 s of cells, if they were executed again
            with pytest.raises(WorkerEnded, match="ended its process"):
                one.call("ends")
        assert one.call("f") == 7
        assert "took 1 s, and is not executed again" in str(one.ready_problem("slow"))
    finally:
        one.close()


def test_folders_that_are_not_read_are_named(tmp_path):
    name = labs.names()[0]
    for student in ("ada", ".hidden", "plain", ".git"):
        (tmp_path / "class" / student).mkdir(parents=True)
    for student in ("ada", ".hidden"):
        (tmp_path / "class" / student / f"{name}.ipynb").write_text("{}")
    (tmp_path / "class" / "eve").symlink_to(tmp_path / "class" / "ada")
    found, _ = submissions.find(tmp_path / "class")
    assert [one.student for one in found] == ["ada"]
    lines = list(grade._left_out(tmp_path / "class", found, []))
    assert lines == [
        "left out: .hidden (its name begins with a dot)",
        "left out: eve (links are not followed)",
        "nothing to grade in 1 folders: plain",
    ]


def test_a_long_name_leaves_room_for_the_reasons():
    screen = Console(file=io.StringIO(), width=80)
    screen.print(report.look_table([("a" * 60, "01", "its reason, which is long enough to wrap")]))
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "its reason, which is long enough to wrap" in text and "…" in text


@pytest.mark.parametrize(
    "header, arrays, says",
    [
        (b"x" * (17 << 20), [], "17,825,792 bytes of plain values are too many to send (the limit"),
        (b"x", [score.np.zeros(1, "u1")] * 10_000, "10,001 arrays are too many to send"),
    ],
)
def test_what_is_too_large_to_send_names_its_own_limit(header, arrays, says):
    with pytest.raises(WireError) as problem:
        Frame(header, arrays).parts  # noqa: B018
    assert says in str(problem.value)


def test_a_notebook_has_a_time_as_a_whole(fork_server, monkeypatch):
    monkeypatch.setattr(session, "NOTEBOOK_S", 0.2)
    slow = "import time\ndef double(x):\n    time.sleep(1)\n    return 2 * x"
    results = score.score(MINI, SOLUTION | {"double": Answer(slow)}, fork_server)
    last = results[-1]
    assert last.status == "timeout" and "this notebook took its" in last.message
    assert "the limit is" not in last.message


def archive(tmp_path, *files):
    path = tmp_path / "submissions.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files:
            packed.writestr(name, content)
    return path


def test_a_zip_bomb_is_left_out_and_the_others_are_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(canvas_submissions, "MAX_NOTEBOOK_BYTES", 1 << 20)
    path = archive(tmp_path, ("a_1_2_01.ipynb", bytes(10 << 20)), ("b_3_4_01.ipynb", "{}"))
    done = canvas_submissions.unpack(path, tmp_path / "out")
    assert done.students == {"1", "3"}
    assert done.left_out == [("a_1_2_01.ipynb", f"it {notebook.TOO_LARGE}")]
    (left,) = (tmp_path / "out" / "1").iterdir()
    assert left.stat().st_size < 1000


def test_zips_by_the_thousand_have_a_sentence_or_their_files(tmp_path):
    rng = random.Random(1)
    whole = archive(tmp_path, ("a_1_2_01.ipynb", "{}" * 99), ("b_3_4_01.ipynb", "[]")).read_bytes()
    path = tmp_path / "odd.zip"
    for _ in range(COUNT):
        odd = bytearray(whole)
        for _ in range(rng.randint(1, 8)):
            odd[rng.randrange(len(odd))] = rng.randrange(256)
        path.write_bytes(odd[: rng.randrange(len(odd))] if rng.random() < 0.2 else odd)
        try:
            done = canvas_submissions.unpack(path, tmp_path / "out")
            assert all("".join(line).isprintable() for line in done.left_out)
            assert len(done.students) <= 2
        except InputError as problem:
            assert "zip" in str(problem)


def rows(*students):
    passed = [Result("1.1 f", 1, 1, "passed")]
    return [row for who in students for row in report.rows(who, "01_strides", passed)]


ROSTER = [
    {"Student": "1002", "ID": "1001", "SIS User ID": "", "SIS Login ID": "mallory", "Section": ""},
    {"Student": "Grace", "ID": "1002", "SIS User ID": "", "SIS Login ID": "grace", "Section": ""},
]


def test_an_id_goes_before_a_name_that_a_student_chose():
    _, lines, unknown = canvas.table(rows("1002", "1001"), ROSTER)
    assert not unknown and {line[0]: line[1] for line in lines[1:]} == {
        "Grace": "1002",
        "1002": "1001",
    }


@pytest.mark.parametrize("folders", [("1002", "grace"), ("Grace", "1002")])
def test_two_rows_for_one_student_are_an_error(folders):
    with pytest.raises(InputError, match="are both Grace"):
        canvas.table(rows(*folders), ROSTER)


def test_a_name_that_two_have_is_an_error():
    twins = [ROSTER[1], ROSTER[1] | {"ID": "7", "SIS Login ID": "grace2"}]
    with pytest.raises(InputError, match="2 people of the roster have this Student"):
        canvas.table(rows("grace ", "7"), [twins[0] | {"SIS Login ID": "g"}, twins[1]])


def test_rosters_by_the_thousand_are_matched_or_refused():
    rng, words = random.Random(2), ["1", "2", "ada", "Ada", "", "\0", "=1", "é", "x" * 99]
    for _ in range(COUNT):
        roster = [{key: rng.choice(words) for key in canvas.WHO} for _ in range(rng.randint(0, 4))]
        try:
            _, lines, unknown = canvas.table(rows(rng.choice(words), "ada"), roster)
            ids = [line[1] for line in lines[1:] if line[1]]
            assert len(ids) == len(set(ids))
        except InputError as problem:
            assert len(str(problem)) < 400


def handed_in(student, change=lambda text: text):
    lab = labs.read("01")
    answers = {name: Answer(change(text)) for name, text in lab.solution.items()}
    return Graded(Submission(student, lab.name, None), lab, [], answers)  # type: ignore[arg-type]


def test_a_ring_of_equal_answers_is_listed_however_large():
    copies = [handed_in(f"s{i}", lambda text, i=i: f"# by {i}\n{text}") for i in range(30)]
    (ring,) = similar.rings(copies)
    assert len(ring.students) == 31 and similar.SOLUTION in ring.students


def test_messages_by_the_thousand_are_short_text():
    rng = random.Random(3)
    for _ in range(COUNT):
        text = "".join(
            chr(rng.choice([0, 7, 10, 27, 65, 0x202E, 0xD800, 0x1F600])) for _ in range(99)
        )
        message = Result("1.1 f", 0, 1, "failed", text * rng.choice([1, 100])).message
        message.encode()
        assert len(message) <= report.MAX_MESSAGE and "\x1b" not in message
        json.dumps(message)
