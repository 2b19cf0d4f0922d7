"""The browser without a window that takes pictures of pages, and that tests open pages in."""

from __future__ import annotations

import shutil

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    """Returns the path of an installed browser, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)
