"""headrace.yaml -> Declaration: read, expand references, validate, lint; all problems at once, each with its line."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Mapping as EnvironMapping
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.declaration.builtin import builtin_declaration
from headrace.declaration.fields import has_mark
from headrace.declaration.finding import Finding
from headrace.declaration.lint import Machine, lint
from headrace.declaration.model import Declaration
from headrace.declaration.overrides import apply_overrides
from headrace.declaration.plain_file import is_there, read_plain
from headrace.declaration.problem import DeclarationError, KeyPath, Problem, Severity
from headrace.declaration.references import References
from headrace.declaration.renamed import move_renamed
from headrace.declaration.validate import Located, Validated, iter_scalars, validate
from headrace.declaration.version import version_problem
from headrace.declaration.yaml_tree import FILE_BYTES, Mapping, Mark, YamlSyntaxError, read_tree

Checks = Callable[[Declaration], Iterable[Finding]]
"""More of what may be wrong, known to packages above this one (`engines/declared.py`)."""


def no_checks(declaration: Declaration) -> Iterable[Finding]:
    """Find nothing."""
    return ()


DEFAULT_FILE = "headrace.yaml"
BUILTIN_NAME = "(built-in declaration)"
IN_MEMORY_NAME = "(declaration of --endpoint)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A declaration that may be used, and where it came from."""

    declaration: Declaration
    path: Path | None
    """Absolute path of the file; None: built in."""
    digest: str
    """SHA-256 of the file's text and of `--set` (not of what references expand to); of the JSON where there is no
    file."""
    warnings: tuple[Problem, ...] = ()


def find_declaration(
    config: Path | None, *, environ: EnvironMapping[str, str], folder: Path | None = None
) -> Path | None:
    """Return the file to load: `config`, else ./headrace.yaml, else $HEADRACE_CONFIG, else None (built in).

    Whatever has that name counts, readable or not: what was meant to be served is never replaced in silence.
    """
    if config is not None:
        return config
    here = (folder or Path.cwd()) / DEFAULT_FILE
    if is_there(here):
        return here
    named = environ.get("HEADRACE_CONFIG")
    return Path(named) if named else None


def this_machine() -> Machine:
    """Return what lint may ask of the machine it runs on."""
    return Machine(has_file=lambda path: Path(path).exists(), threads=os.cpu_count())


def load_declaration(
    path: Path | None,
    *,
    environ: EnvironMapping[str, str],
    is_elsewhere: bool = False,
    machine: Machine | None = None,
    overrides: Sequence[str] = (),
    checks: Checks = no_checks,
    keeps_secrets: bool = False,
) -> Loaded:
    """Load the file at `path`, or the built-in declaration for None.

    `is_elsewhere`: another machine will run it, so that files and secrets missing here are only warnings, and values
    that depend on them are left out of the result. `overrides` are `key.path=value` texts of `--set`. `keeps_secrets`:
    secrets stay references, see `references.References`.

    Raises: DeclarationError with every problem found.
    """
    machine = machine or this_machine()
    if path is None:
        if overrides:
            raise _file_error(Path(BUILTIN_NAME), "takes no --set", "`headrace init` writes it as a file.")
        return in_memory(builtin_declaration(), checks=checks)
    return load_text(
        read_text(path),
        path=path,
        environ=environ,
        is_elsewhere=is_elsewhere,
        machine=machine,
        overrides=overrides,
        checks=checks,
        keeps_secrets=keeps_secrets,
    )


def in_memory(declaration: Declaration, *, checks: Checks = no_checks) -> Loaded:
    """Wrap a declaration that no file holds: the built-in one, or that of `headrace up --endpoint`.

    Raises: DeclarationError, as for a file.
    """
    findings = [*lint(declaration, this_machine()), *checks(declaration)]
    problems = [_without_file(finding) for finding in findings]
    if any(problem.severity is Severity.ERROR for problem in problems):
        raise DeclarationError(problems)
    digest = hashlib.sha256(declaration.model_dump_json().encode()).hexdigest()
    return Loaded(declaration=declaration, path=None, digest=digest, warnings=tuple(problems))


def in_memory_with(
    declaration: Declaration, overrides: Sequence[str], *, environ: EnvironMapping[str, str], checks: Checks = no_checks
) -> Loaded:
    """Wrap a declaration that no file holds, with `--set` applied as to a file of the same content.

    Raises: DeclarationError.
    """
    if not overrides:
        return in_memory(declaration, checks=checks)
    tree = declaration.model_dump(mode="json", exclude_unset=True)
    text = json.dumps({"version": 1, **tree}).replace("${", "$${")  # YAML holds JSON
    loaded = load_text(
        text,
        path=Path(IN_MEMORY_NAME),
        environ=environ,
        is_elsewhere=False,
        machine=this_machine(),
        overrides=overrides,
        checks=checks,
    )
    return replace(loaded, path=None)


def read_text(path: Path) -> str:
    """Read a declaration's file within its bound.

    Raises: DeclarationError.
    """
    try:
        content = read_plain(path, FILE_BYTES)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError) and not path.is_symlink()
        hint = "`headrace init` writes a first one." if is_missing else None
        raise _file_error(path, f"cannot be read: {error.strerror or error}", hint) from error
    if len(content) > FILE_BYTES:
        raise _file_error(path, f"is larger than {FILE_BYTES} bytes", "Put long texts into files: ${file:PATH}.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _file_error(path, f"is not UTF-8 text (byte {error.start})", None) from error


def load_text(
    text: str,
    *,
    path: Path,
    environ: EnvironMapping[str, str],
    is_elsewhere: bool,
    machine: Machine,
    overrides: Sequence[str] = (),
    checks: Checks = no_checks,
    keeps_secrets: bool = False,
) -> Loaded:
    """Load `text` as if it stood in the file `path`.

    Raises: DeclarationError.
    """
    tree = _read(text, path)
    if (problem := version_problem(tree)) is not None and problem.severity is Severity.ERROR:
        raise DeclarationError([problem])
    problems = [problem] if problem is not None else []
    apply_overrides(tree.root, overrides)
    problems += [
        tree.problem(severity, where, *said, is_about_key=True) for severity, where, *said in move_renamed(tree)
    ]
    folder = path.absolute().parent
    references = References(environ=environ, folder=folder, keeps_secrets=keeps_secrets)
    references.expand(tree.root)
    missing = Severity.WARNING if is_elsewhere else Severity.ERROR
    for severity, found in ((Severity.ERROR, references.refused), (missing, references.missing)):
        problems += [tree.problem(severity, where, slip.message, slip.hint) for where, slip in found]
    _resolve_paths(tree, folder)
    unexpanded = frozenset([*(where for where, _ in references.missing), *references.kept])
    validated = validate(tree, unexpanded=unexpanded)
    problems += validated.problems
    problems += _lint(tree, validated, machine, unexpanded, is_elsewhere=is_elsewhere)
    if validated.declaration is not None and validated.is_whole:
        problems += [_at(tree, finding, is_elsewhere=is_elsewhere) for finding in checks(validated.declaration)]
    problems = _sorted(problems)
    if validated.declaration is None or any(problem.severity is Severity.ERROR for problem in problems):
        raise DeclarationError(problems)
    digest = hashlib.sha256("\n".join([text, *overrides]).encode()).hexdigest()
    return Loaded(declaration=validated.declaration, path=path.absolute(), digest=digest, warnings=tuple(problems))


def _lint(
    tree: Located, validated: Validated, machine: Machine, unexpanded: frozenset[KeyPath], *, is_elsewhere: bool
) -> list[Problem]:
    if validated.declaration is None:
        return []
    models = tree.root.entries.get("models")
    names = frozenset(models.entries) if isinstance(models, Mapping) else frozenset[str]()
    findings = lint(validated.declaration, machine, models=names, is_whole=validated.is_whole)
    return [_at(tree, finding, is_elsewhere=is_elsewhere) for finding in findings if finding.path not in unexpanded]


def _read(text: str, path: Path) -> Located:
    try:
        root = read_tree(text)
    except YamlSyntaxError as error:
        raise DeclarationError(
            [
                Problem(
                    severity=Severity.ERROR,
                    file=str(path),
                    line=slip.mark.line,
                    column=slip.mark.column,
                    key="",
                    message=slip.message,
                    hint=slip.hint,
                )
                for slip in error.slips
            ]
        ) from error
    if root is None:
        raise _file_error(path, "is empty", "It needs at least models and pools; `headrace init` writes a first one.")
    if not isinstance(root, Mapping):
        raise _file_error(path, "is not a mapping (key: value lines)", "`headrace schema` shows the keys.")
    return Located(root, str(path))


def _resolve_paths(tree: Located, folder: Path) -> None:
    """Make the paths in the file independent of where headrace starts: relative ones count from the file's folder."""
    for path, scalar in iter_scalars(tree.root):
        if not isinstance(scalar.value, str) or not scalar.value:
            continue
        if has_mark(path, "x-path"):
            scalar.value = str(folder / Path(scalar.value).expanduser())
        elif len(path) == 3 and (path[0], path[2]) == ("models", "source") and scalar.value.startswith("file:"):
            scalar.value = f"file:{folder / Path(scalar.value.removeprefix('file:')).expanduser()}"


def _at(tree: Located, finding: Finding, *, is_elsewhere: bool) -> Problem:
    is_excused = is_elsewhere and finding.is_about_this_machine
    severity = Severity.WARNING if is_excused else finding.severity
    return tree.problem(severity, finding.path, finding.message, finding.hint)


def _without_file(finding: Finding) -> Problem:
    nowhere = Located(Mapping(mark=Mark(0, 0)), BUILTIN_NAME)
    return nowhere.problem(finding.severity, finding.path, finding.message, finding.hint)


def _sorted(problems: Sequence[Problem]) -> list[Problem]:
    return sorted(dict.fromkeys(problems), key=lambda problem: (problem.line, problem.column, problem.severity))


def _file_error(path: Path, message: str, hint: str | None) -> DeclarationError:
    problem = Problem(severity=Severity.ERROR, file=str(path), line=0, column=0, key="", message=message, hint=hint)
    return DeclarationError([problem])
