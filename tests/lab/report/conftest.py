"""One browser for all tests of the report, and a page of three runs opened in it."""

import pytest
from report.browser import Browser, find_browser
from report.fake_run import write_run

from filtrax.lab import report


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="session")
def browser(folder):
    program = find_browser()
    if program is None:
        pytest.skip("no browser: install chromium, or name one in the variable FILTRAX_BROWSER")
    browser = Browser(program, folder / "profile")
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def page(folder):
    """Two finished runs, and one that is still in training."""
    runs = [write_run(folder / name, seed=seed) for seed, name in enumerate(("one", "two"))]
    runs.append(write_run(folder / "three", seed=2, finished=False))
    return report.write(runs, folder / "report.html")


@pytest.fixture
def opened(browser, page):
    """The page, freshly opened in a wide window; in the end nothing may have gone wrong."""
    browser.prefer(color_scheme="light")
    browser.resize(1200)
    browser.open(page)
    yield browser
    assert browser.complaints() == []
    assert all(address.startswith(("file:", "data:")) for address in browser.requests())
