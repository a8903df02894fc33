"""The one error of tools/plot: its message names the file and the remedy."""


class PlotError(Exception):
    pass
