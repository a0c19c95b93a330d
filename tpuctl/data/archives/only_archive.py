"""Opens the archive that is all of a source, at the folder that holds the source's own."""

from __future__ import annotations

from tpuctl.data.archives.tree import ArchiveTree
from tpuctl.data.files.listing import SPLIT_FOLDERS, unreadable
from tpuctl.data.source import ScanProgress
from tpuctl.data.trees.tree import ListedFile, Tree
from tpuctl.errors import UsageError


def archive_tree(outer: Tree, progress: ScanProgress) -> ArchiveTree:
    """Return the tree of the only file of a tree; raises UsageError for a damaged archive, or an empty one.

    Where the archive holds one folder with folders in it and nothing else, that is the root: `tar cf pets.tar
    pets` has `pets/cat/1.png`.
    """
    try:
        entry = outer.look(outer.only)
        if entry is None:
            raise FileNotFoundError(2, "No such file")
        tree = ArchiveTree.at(outer, ListedFile(outer.only, entry.size, entry.stamp), progress)
    except OSError as error:
        raise unreadable(outer.only, error) from error
    if not len(tree):
        raise UsageError(f"'{outer}' holds no files.", hint="Give an archive with some.", file=outer.only)
    while wrapper := _wrapper(tree):
        tree = tree.below(wrapper)
    return tree


def _wrapper(tree: ArchiveTree) -> str:
    """Return the folder that holds all of a tree, and folders in it; empty without one."""
    entries = tree.scan("")
    if len(entries) != 1 or entries[0].kind != "folder" or entries[0].name.lower() in SPLIT_FOLDERS:
        return ""
    inner = tree.scan(entries[0].name)
    return entries[0].name if any(entry.kind == "folder" for entry in inner) else ""
