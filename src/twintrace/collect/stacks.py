"""Where in the user's own files a call was made.

    #4  train.py:31 in step        loss = criterion(net(x), y)
        model.py:12 in forward     x = self.norm(x)

Frames of the framework, of twintrace and of Python's own library are left out, and what has started the script. Each distinct
stack is written once; a call carries its number. Finding the number of a known stack costs a few microseconds: positions are
compared, lines are not looked up.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FrameType

from ..store.lines import encode

MAX_FRAMES = 24
MAX_LINE = 2000  # characters of a line of source: nobody writes as many, but generated code and data may have them
MAX_TEXTS = 10_000
_NO, _YES, _LAST = 0, 1, 2


class Stacks:
    """Numbers the stacks of one journal."""

    def __init__(self, internal: tuple[str, ...], write: Callable[[int, str], None]) -> None:
        """`write` gets the number and the frames of each stack, as JSON, when it is met first."""
        library = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
        site = tuple(sysconfig.get_paths()[name] for name in ("purelib", "platlib"))
        # As it was imported, links and all; and the folder alone: torchvision is not a part of torch.
        own = (str(Path(__file__).parent.parent), *internal)
        self._own = tuple(folder.rstrip(os.sep) + os.sep for folder in own)
        self._library, self._site = library, site
        self._write = write
        self._kept: dict[int, int] = {}
        # Keeps the ids in `_kept` and in the keys from being given to another code object.
        self._codes: list[CodeType] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._texts: dict[tuple[int, ...], str] = {}  # lasts from journal to journal

    def reset(self) -> None:
        """A new journal: stacks are numbered and written anew."""
        self._numbers.clear()

    @property
    def count(self) -> int:
        """Number of stacks in this journal."""
        return len(self._numbers)

    def numbers(self) -> dict[tuple[int, ...], int]:
        """The number of each stack of this journal."""
        return dict(self._numbers)

    def go_on_from(self, numbers: Mapping[tuple[int, ...], int], count: int) -> None:
        """As if the first `count` of these had been met in this journal."""
        self._numbers = {place: number for place, number in numbers.items() if number < count}

    def capture(self, depth: int = 1) -> int:
        """The number of the stack that called, innermost frame first."""
        frame: FrameType | None = sys._getframe(depth)
        key: list[int] = []
        kept = self._kept
        while frame is not None:
            code = frame.f_code
            wanted = kept.get(id(code))
            if wanted is None:
                wanted = self._judge(frame)
            if wanted:
                key.append(id(code))
                key.append(frame.f_lasti)
                if wanted == _LAST or len(key) >= 2 * MAX_FRAMES:
                    break
            frame = frame.f_back
        place = tuple(key)
        number = self._numbers.get(place)
        if number is None:
            number = self._numbers[place] = len(self._numbers)
            text = self._texts.get(place)
            if text is None:
                text = encode(self._describe(sys._getframe(depth)))
                if len(self._texts) < MAX_TEXTS:
                    self._texts[place] = text
            self._write(number, text)
        return number

    def _judge(self, frame: FrameType) -> int:
        code = frame.f_code
        file = code.co_filename
        inside_library = file.startswith(self._library) and not file.startswith(self._site)
        inner = inside_library or file.startswith((*self._own, "<frozen"))
        # The script itself: what lies below has started it, a launcher or a notebook's server.
        last = code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__"
        wanted = _NO if inner else _LAST if last else _YES
        self._codes.append(code)
        self._kept[id(code)] = wanted
        return wanted

    def _describe(self, frame: FrameType | None) -> list[list[object]]:
        frames: list[list[object]] = []
        while frame is not None and len(frames) < MAX_FRAMES:
            code = frame.f_code
            if wanted := self._kept.get(id(code)):
                text = _cut(linecache.getline(code.co_filename, frame.f_lineno).strip())
                frames.append([code.co_filename, frame.f_lineno, code.co_name, text])
                if wanted == _LAST:
                    break
            frame = frame.f_back
        return frames


def _cut(line: str) -> str:
    """A line of source as it is kept, and it is said where something is left out."""
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]} …"
