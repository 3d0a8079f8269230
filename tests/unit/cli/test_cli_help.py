"""Help of verbs and subjects, in sections, with examples, in 80 columns."""

from __future__ import annotations

import shlex

import click
import pytest

from rmqstore.cli import _SECTIONS, _VERBS, main
from rmqstore.cli.manual import SUBJECTS
from support.command_line import Run, one_line

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("verb", _VERBS)
def test_it_ends_with_two_examples(run: Run, verb: str) -> None:
    assert isinstance(main, click.Group)
    lines = run(verb, "--help").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    *_, heading, first, second = lines
    assert heading.strip() == "Examples:"
    command = main.get_command(click.Context(main), verb)
    assert command is not None
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    for example in (first, second):
        words = shlex.split(example)
        assert words[:2] == ["rmqstore", verb]
        assert {word for word in words if word.startswith("--")} <= known


def test_verbs_are_in_sections(run: Run) -> None:
    text = run("--help").stdout
    assert max(map(len, text.splitlines())) <= 80
    places = [text.index(f"Verbs: {section}\n") for section in _SECTIONS]
    assert places == sorted(places)
    for section, verbs in _SECTIONS.items():
        part = text.partition(f"Verbs: {section}\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in part.splitlines()] == list(verbs)
    for verb in _VERBS:
        assert text.count(f"\n  {verb} ") == 1


@pytest.mark.parametrize("subject", SUBJECTS)
def test_subjects(run: Run, subject: str) -> None:
    shown = run("help", subject)
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert shown.stdout.startswith(f"{SUBJECTS[subject][0]}\n\n")
    assert subject in run("help").stdout


def test_what_the_subjects_say(run: Run) -> None:
    formats = run("help", "formats").stdout
    assert "%t topic" in formats
    assert "\\n \\t \\r \\0 \\\\ and \\xHH" in formats
    assert "@1763668768804" in run("help", "times").stdout
    assert "3    open for writing elsewhere" in run("help", "exit-codes").stdout


def test_help_of_a_verb_is_its_own(run: Run) -> None:
    assert run("help", "cat").stdout == run("cat", "--help").stdout
    assert run("help").stdout.startswith(run("--help").stdout)


def test_an_unknown_subject_is_told(run: Run) -> None:
    assert "no help on 'tims'; did you mean 'times'?" in one_line(run("help", "tims"), 2)
    assert "did you mean 'queues'?" in one_line(run("help", "queue"), 2)
    assert "subjects are times, formats" in one_line(run("help", "zzzzzz"), 2)
