"""The screen of `amqp-broker top`: views, keys, and a thread that looks: no key waits for the broker."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

import attrs
from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Resize
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import ContentSwitcher, DataTable, Footer, Input, Label, Sparkline, Static

from amqp_broker.client.blocking_management import Refused
from amqp_broker.client.errors import ClientError, LinkRefused, LoginRefused, MessageRefused
from amqp_broker.looking.broker_view import BrokerView, Page
from amqp_broker.looking.figures import Numbers
from amqp_broker.looking.limits import FILTER_CHARACTERS_MAX, ROWS, ROWS_MAX
from amqp_broker.looking.listing import Wanted
from amqp_broker.looking.output import printable
from amqp_broker.looking.places import Busy
from amqp_broker.looking.shown import NUMBERS
from amqp_broker.looking.tables import TABLES, Column
from amqp_broker.top import lines
from amqp_broker.top.looker import Looker, Reading

VIEWS: Final[dict[str, tuple[str, ...]]] = {
    "overview": (), "queues": ("queue",), "connections": ("connection",),
    "undecided": ("transaction", "half"),
}  # fmt: skip
"""Each view with the types whose tables it shows."""
SERIES_WIDTH: Final = 14
NEWEST_WIDTH: Final = 18
KEYS_S: Final = 0.1
"""So long after the last key a look begins."""
SHARE_OF_KEYS: Final = 0.1
PAUSE_OF_KEYS_MAX_S: Final = 2.0
"""What keys ask for takes so much of the time at most, but nobody waits longer than that for a key."""
SAID_FROM_S: Final = 5.0
"""Of pauses as long as this a table says when they end."""
AROUND_ROWS: Final = 3
"""Lines of a table that are no rows: what it is, its titles, and where it is wide, what scrolls it."""
HELP: Final = """\
1  overview: rates, depth, commits, memory, disk
2  queues and logs
3  connections
4  transactions, and half messages that are not decided
←  →   the order is that of the next column to the left or right
r      the other way round
n  p   next page, page before
/      only names with these words; Enter goes back to the table,
       Escape takes the words away
?      this help; any key closes it
q      ends

Rates are those between two looks. In the order of a rate all
there are have to be read, in any other one only the page.
The filter knows no comparisons, as messages>100 in the console.
"""


class Looked(Message):
    """A look brought this, or a sentence that says why it brought nothing."""

    def __init__(self, found: Reading | str) -> None:
        super().__init__()
        self.found = found


class Refitted(Message):
    """A table has room for other rows."""


class Help(ModalScreen[None]):
    """The keys."""

    def compose(self) -> ComposeResult:
        """One text."""
        yield Static(Text(HELP), id="help")

    def on_key(self) -> None:
        """Any key closes it."""
        self.dismiss()


class Series(Horizontal):
    """One series: its name, its line, and the newest value."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self._line = Sparkline([], summary_function=max)
        self._newest = Label("", classes="newest")

    def compose(self) -> ComposeResult:
        """The three."""
        yield Label(self.name or "", classes="series")
        yield self._line
        yield self._newest

    def show(self, values: Numbers, told: str) -> None:
        """As many of the newest ones as there is room for."""
        room = max(1, self.size.width - SERIES_WIDTH - NEWEST_WIDTH)
        known = [0.0 if value is None else value for value in values[-room:]]
        self._line.styles.width = max(1, len(known))
        self._line.data = known
        self._newest.update(Text(told))


def _cell(column: Column, text: str) -> Text:
    return Text(text, justify="right" if column.form in NUMBERS else "left")


class Listed(Vertical):
    """The table of one type: a line above it, and one page of rows."""

    def __init__(self, kind: str) -> None:
        super().__init__(id=f"table-{kind}")
        self.kind = kind
        self.wanted = Wanted(sort=TABLES[kind].sort, size=ROWS)
        self.shown: Page | None = None
        self._pages = 1

    def compose(self) -> ComposeResult:
        """The line and the table."""
        yield Label("", classes="above")
        yield DataTable(cursor_type="row", zebra_stripes=True)

    def on_mount(self) -> None:
        """The columns are those of the console."""
        self._head()

    def _head(self) -> None:
        table = self.query_one(DataTable)
        table.clear(columns=True)
        for column in lines.columns_of(self.kind):
            sign = {column.name: " ▲", f"-{column.name}": " ▼"}
            mark = next((sign[name] for name in sign if name == self.wanted.sort), "")
            table.add_column(_cell(column, column.title + mark), key=column.name)

    def want(self, **changed: Any) -> None:
        """Another order, page or filter."""
        before = self.wanted
        self.wanted = attrs.evolve(before, **changed)
        if self.wanted.sort != before.sort:
            self._head()
            self.shown = None

    def next_sort(self, by: int) -> None:
        """The order of another column, the largest first where it has numbers."""
        columns = lines.columns_of(self.kind)
        names = [column.name for column in columns]
        here = self.wanted.sort.removeprefix("-")
        at = (names.index(here) + by) % len(names) if here in names else 0
        falls = "-" if columns[at].form in NUMBERS else ""
        self.want(sort=falls + names[at], page=1)

    def turn(self) -> None:
        """The other way round."""
        sort = self.wanted.sort
        self.want(sort=sort.removeprefix("-") if sort.startswith("-") else f"-{sort}", page=1)

    def turn_page(self, by: int) -> None:
        """The next page, or the one before."""
        here = min(self.wanted.page, self._pages)  # there may be fewer by now
        self.want(page=min(max(1, here + by), self._pages))

    def on_resize(self, resized: Resize) -> None:
        """As many rows as there is room for; the first one stays in view."""
        room = min(max(1, resized.size.height - AROUND_ROWS), ROWS_MAX)
        if room != self.wanted.size:
            first = (self.wanted.page - 1) * self.wanted.size
            self.want(size=room, page=first // room + 1)
            self.post_message(Refitted())

    def tell_age(self, view: BrokerView) -> None:
        """What is shown, how old it is, and where that takes longer, when it is read anew."""
        page = self.shown
        if page is None:
            return
        listing, wanted = page.listing, page.wanted
        way = "falling" if wanted.sort.startswith("-") else "rising"
        words = f", with {wanted.words!r}" if wanted.words else ""
        age_s, pause_s = view.age_s(page), page.holds_until - page.read_at
        following = f", next look in {max(0.0, pause_s - age_s):.0f} s" if pause_s > SAID_FROM_S else ""
        order = f"by {wanted.sort.removeprefix('-')}, {way} · page {listing.page} of {listing.pages}"
        told = f"{TABLES[self.kind].title}: {listing.found:,}{words} · {order} · {age_s:.0f} s old{following}"
        self.query_one(".above", Label).update(Text(printable(told)))

    def show(self, page: Page) -> None:
        """These rows, with the cursor where it was."""
        if page is self.shown or page.wanted != self.wanted:
            return
        self.shown, self._pages = page, page.listing.pages
        table = self.query_one(DataTable)
        at, left = table.cursor_row, table.scroll_x
        table.clear()
        most = lines.cell_max(self.size.width)
        for row in page.listing.rows:
            cells = zip(lines.cells_of(self.kind, row, most), lines.columns_of(self.kind), strict=True)
            table.add_row(*(_cell(column, text) for text, column in cells))
        table.move_cursor(row=at)
        table.scroll_to(x=left, animate=False)


class Top(App[None]):
    """The program: it shows what the thread that looks brings, and says to it what is wanted."""

    TITLE = "amqp-broker top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #state { height: 1; padding: 0 1; }
    #state.lost { text-style: bold reverse; }
    ContentSwitcher { height: 1fr; padding: 0 1; }
    Series { height: 2; }
    .series { width: 14; }
    .newest { width: 1fr; text-align: right; }
    Sparkline { width: 1; height: 1; }
    DataTable { height: 1fr; }
    .above { height: 1; }
    #filter { display: none; height: 1; border: none; }
    #filter.asked { display: block; }
    Help { align: center middle; }
    #help { width: 76; height: auto; padding: 1 2; border: round $primary; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(at), f"view('{name}')", name.capitalize()) for at, name in enumerate(VIEWS, 1)),
        Binding("left", "sort(-1)", "Order", show=False, priority=True),
        Binding("right", "sort(1)", "Order", show=False, priority=True),
        Binding("r", "turn", "Reverse", show=False),
        Binding("n", "page(1)", "Next page", show=False),
        Binding("p", "page(-1)", "Page before", show=False),
        Binding("slash", "ask_filter", "Filter", key_display="/"),
        Binding("escape", "no_filter", "All", show=False),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(self, looker: Looker) -> None:
        # NO_COLOR: only the terminal's own colours can be left out whole.
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") else None)
        self.looker = looker
        self._wanted: dict[str, Wanted] = {}
        self._again = threading.Event()
        self._drawn = threading.Event()
        self._stop = threading.Event()
        self.failed: Exception | None = None
        """Why it ended, where it was no key and no signal."""
        self._overview_of: Mapping[str, Any] | None = None
        self._fault = ""
        self._back_at = ""
        self._asks_filter: Listed | None = None

    def compose(self) -> ComposeResult:
        """A line on the state, one of the views, the keys."""
        yield Static("", id="state")
        with ContentSwitcher(initial="overview"):
            with VerticalScroll(id="overview"):
                yield Static("", id="told")
            for name, kinds in VIEWS.items():
                if kinds:
                    with Vertical(id=name):
                        for kind in kinds:
                            yield Listed(kind)
        yield Input(
            id="filter", placeholder="words of names", max_length=FILTER_CHARACTERS_MAX, compact=True,
            disabled=True,
        )  # fmt: skip; until it is asked for: it would have all keys, also where nobody sees it
        yield Footer()

    @property
    def _main(self) -> Screen[object]:
        """The screen with all of this, also while the help is over it."""
        return self.screen_stack[0]

    @property
    def _is_there(self) -> bool:
        """Not while it ends."""
        return bool(self.screen_stack) and bool(self._main.query("#state"))

    # The thread that looks

    def on_ready(self) -> None:
        """Begin to look, now that all parts are there; a signal ends it as `q` does, so that the terminal is
        as it was.
        """
        for ends in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(ends, self.exit)
        self.set_interval(1.0, self.tell_ages)
        threading.Thread(target=self._look, name="top-looks", daemon=True).start()

    def on_unmount(self) -> None:
        """Look no more."""
        self._stop.set()
        self._drawn.set()
        self._again.set()

    def _look(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            self._again.clear()
            self._drawn.clear()
            try:
                self.post_message(Looked(self.looker.look(self._wanted)))
            except (Refused, LoginRefused, LinkRefused, MessageRefused) as refused:
                self.post_message(Looked(f"refused: {refused}"))
            except (ClientError, Busy) as error:
                self.post_message(Looked(f"lost: {error}"))
            except Exception as fault:  # a screen that nobody renews would look as a broker at rest
                self.failed = fault
                self.call_later(self.exit)
                return
            took_s = time.monotonic() - begun
            self._drawn.wait()  # a slow terminal is not told more than it can show: keys would wait behind it
            if self._again.wait(self.looker.pause_s):
                self._wait_for_keys(took_s / SHARE_OF_KEYS)

    def _wait_for_keys(self, pause_s: float) -> None:
        """Until no key came for a moment: what a key asks for is read at once, but not for each letter."""
        self._stop.wait(min(pause_s, PAUSE_OF_KEYS_MAX_S))
        while self._again.is_set() and not self._stop.is_set():
            self._again.clear()
            self._again.wait(KEYS_S)

    def _look_again(self) -> None:
        self._wanted = {each.kind: each.wanted for each in self._tables()}
        self._again.set()

    @on(Looked)
    def show_look(self, looked: Looked) -> None:
        """What came, or why nothing came: the former look stays on the screen."""
        if not self._is_there:
            self._drawn.set()
            return
        self.call_after_refresh(self._drawn.set)
        if isinstance(looked.found, str):
            self._fault = looked.found
        else:
            if self._fault:
                self._back_at = f" · connected again at {datetime.now():%H:%M:%S}"
            self._fault = ""
            self._show(looked.found)
        self.tell_ages()

    def tell_ages(self) -> None:
        """How old is what is shown: each second, as nothing may come for long."""
        if not self._is_there:
            return
        state = self._main.query_one("#state", Static)
        state.set_class(bool(self._fault), "lost")
        looks = self.looker.view.history.copy().times()[-1:]
        age = "".join(f" · {max(0.0, time.time() - at):.0f} s old" for at in looks)
        said = f"{self._fault}{age}; trying again"
        if not self._fault:
            said = f"connected to {self.looker.endpoint}{age}{self._back_at}"
        state.update(Text(printable(said), no_wrap=True, overflow="ellipsis"))
        for each in self._tables():
            each.tell_age(self.looker.view)

    def _show(self, reading: Reading) -> None:
        for each in self._tables():
            if each.kind in reading.pages:
                each.show(reading.pages[each.kind])
        if self._main.query_one(ContentSwitcher).current == "overview":
            self._show_overview(reading)

    def _show_overview(self, reading: Reading) -> None:
        broker = reading.broker
        if broker is self._overview_of:
            return
        self._overview_of = broker
        told = (lines.described(broker), lines.counted(broker), lines.memory(broker), lines.disk(broker))
        self._main.query_one("#told", Static).update(Text("\n".join([*filter(None, told), ""])))
        overview = self._main.query_one("#overview", VerticalScroll)
        series = lines.series_of(reading.figures)
        known = {each.name for each in overview.query(Series)}
        for each in overview.query(Series):
            if each.name not in series:  # another broker may have no disk
                each.remove()
        overview.mount(*(Series(name) for name in series if name not in known))
        self.call_after_refresh(self._show_series, series)

    def _show_series(self, series: dict[str, tuple[str, Numbers]]) -> None:
        for row in self._main.query(Series):
            if row.name in series:
                unit, values = series[row.name]
                row.show(values, lines.newest(unit, values))

    def _tables(self) -> list[Listed]:
        name = self._main.query_one(ContentSwitcher).current
        return [*self._main.query_one(f"#{name}").query(Listed)]

    def _table(self) -> Listed | None:
        """The one that keys are for: which has the focus, or the first one."""
        tables = self._tables()
        return next((each for each in tables if each.has_focus_within), tables[0] if tables else None)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Left and right are the filter's where it has the focus."""
        return action != "sort" or not isinstance(self.focused, Input)

    def action_view(self, name: str) -> None:
        """Another view."""
        self._leave_filter()
        self._main.query_one(ContentSwitcher).current = name
        tables = self._tables()
        if tables:
            tables[0].query_one(DataTable).focus()
        self._look_again()

    def action_sort(self, by: int) -> None:
        """The order of another column."""
        table = self._table()
        if table is not None:
            table.next_sort(by)
            self._look_again()

    def action_turn(self) -> None:
        """The other way round."""
        table = self._table()
        if table is not None:
            table.turn()
            self._look_again()

    def action_page(self, by: int) -> None:
        """Another page."""
        table = self._table()
        if table is not None:
            table.turn_page(by)
            self._look_again()

    def action_ask_filter(self) -> None:
        """Ask for words."""
        table = self._asks_filter = self._table()
        if table is not None:
            asked = self._main.query_one("#filter", Input)
            asked.value = table.wanted.words
            asked.add_class("asked")
            asked.disabled = False
            asked.focus()

    def action_no_filter(self) -> None:
        """All again."""
        table = self._asks_filter or self._table()
        self._leave_filter()
        if table is not None:
            table.want(words="", page=1)
            self._look_again()

    def _leave_filter(self) -> None:
        table, self._asks_filter = self._asks_filter, None
        asked = self._main.query_one("#filter", Input)
        asked.remove_class("asked")
        asked.disabled = True
        if table is not None:
            table.query_one(DataTable).focus()

    @on(Input.Changed, "#filter")
    def filter_changed(self, changed: Input.Changed) -> None:
        """Each letter counts at once."""
        table = self._asks_filter
        if table is not None and changed.value.strip() != table.wanted.words:
            table.want(words=changed.value.strip(), page=1)
            self._look_again()

    @on(Input.Submitted, "#filter")
    def filter_said(self) -> None:
        """Back to the table."""
        self._leave_filter()

    def action_help(self) -> None:
        """The keys."""
        self.push_screen(Help())

    @on(Refitted)
    def refitted(self) -> None:
        """Other rows are wanted."""
        self._look_again()
