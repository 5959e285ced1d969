"""Where the entries of a declaration stand: file and line, for whoever has to edit them."""

from headrace.declaration.load import BUILTIN_NAME, Loaded, read_text
from headrace.declaration.problem import DeclarationError, KeyPath
from headrace.declaration.validate import Located
from headrace.declaration.yaml_tree import Mapping, YamlSyntaxError, read_tree


class Places:
    """The lines of one declaration's file, as it is now; read at the first question.

    `shows_folder`: where the file lies is said too; not to somebody who has no business on this machine.
    """

    def __init__(self, loaded: Loaded, *, shows_folder: bool = True) -> None:
        self._loaded = loaded
        self._shows_folder = shows_folder
        self._tree: Located | None = None
        self._is_read = False

    def find_line(self, path: KeyPath) -> int:
        """The line of `path`, or of the nearest thing above it; 0 where there is no file that can be read."""
        if not self._is_read:
            self._tree, self._is_read = _read(self._loaded), True
        return 0 if self._tree is None else self._tree.mark_of(path, is_about_key=True).line

    def show(self, path: KeyPath) -> str:
        """`/etc/headrace.yaml:12`."""
        file = self._loaded.path
        name = BUILTIN_NAME if file is None else str(file) if self._shows_folder else file.name
        line = self.find_line(path)
        return f"{name}:{line}" if line else name


def _read(loaded: Loaded) -> Located | None:
    if loaded.path is None:
        return None
    try:
        root = read_tree(read_text(loaded.path))
    except (DeclarationError, YamlSyntaxError):
        return None
    return Located(root, str(loaded.path)) if isinstance(root, Mapping) else None
