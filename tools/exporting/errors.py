"""The one error of tools/export: its message names the file and the remedy."""


class ExportError(Exception):
    pass
