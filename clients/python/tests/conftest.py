import pytest
import stage


@pytest.fixture(scope="session")
def stores(tmp_path_factory):
    """Two Redis servers, which all tests share."""
    folder = tmp_path_factory.mktemp("stores")
    stores = {"one": stage.Redis(folder / "one"), "other": stage.Redis(folder / "other")}
    yield stores
    for store in stores.values():
        store.end()


@pytest.fixture(scope="session")
def url(stores):
    return stores["one"].url
