"""From settings to where programs can run."""

import pytest

from rota.app.settings import load_settings
from rota.app.sites import ExecutorTrial, LocalSiteChecker
from rota.errors import Invalid, NotPermitted, Unavailable
from rota.executors.container.plugin import ContainerSettings, find_engine
from rota.executors.shared.mounts import load_mounts
from rota.model.programs import SharedFolder, Site
from rota.model.spaces import SpaceRole
from rota.ports.executor import SEARCH_PATH, MissingRequirement


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    (tmp_path / "data").mkdir()
    return folder


def a_list(path, *folders, more=""):
    path.write_text("".join(f'[[mount]]\nfolder = "{folder}"\n{more}' for folder in folders))
    path.chmod(0o600)


def test_without_a_list_only_what_is_rotas_own_is_shown(home, tmp_path):
    mounts = load_mounts(home, None)
    assert mounts.mount(str(home / "spaces" / "main"), SpaceRole.MAIN, write=True).write
    for own in ("spaces/other", "keepers/rooms/1-1", "keepers/mailboxes/1-1/abcdef12/out"):
        with pytest.raises(NotPermitted, match="belongs to Rota"):
            mounts.share(SharedFolder(path=str(home / own), write=False), SpaceRole.MAIN)
    for path in (home, home / "rota.db", home / "keepers", tmp_path / "data"):
        with pytest.raises(NotPermitted):
            mounts.mount(str(path), SpaceRole.MAIN, write=False)


async def test_what_the_list_names_may_be_asked_for(home, tmp_path):
    data = str(tmp_path / "data")
    a_list(home / "mounts.toml", data, more="members_write = false\n")
    sites = LocalSiteChecker(load_settings(str(home)))
    sites.try_out = lambda name: _Fine()
    shared = Site(executor="sandbox", isolated=True, mounts=(SharedFolder(path=data, write=True),))
    await sites.admit(shared, SpaceRole.MAIN)
    with pytest.raises(NotPermitted, match="is read-only"):
        await sites.admit(shared, SpaceRole.MEMBER)
    elsewhere = Site(executor="sandbox", isolated=True, mounts=(SharedFolder(path="/opt"),))
    with pytest.raises(NotPermitted, match="may not be mounted"):
        await sites.admit(elsewhere, SpaceRole.MAIN)


class _Fine:
    missing = ()


def test_a_list_that_hands_out_rotas_home_is_refused(home, tmp_path):
    for folder in (tmp_path, home, home / "spaces"):
        a_list(home / "mounts.toml", folder)
        with pytest.raises(Invalid, match="move it out|outside of Rota's home"):
            load_mounts(home, None)
    a_list(tmp_path / "list.toml", home / "keepers")
    with pytest.raises(Invalid, match="outside of Rota's home"):
        load_mounts(home, tmp_path / "list.toml")


def test_a_list_that_programs_could_write_is_refused(home):
    (home / "spaces").mkdir()
    a_list(home / "spaces" / "list.toml")
    with pytest.raises(Invalid, match="out of `spaces`"):
        load_mounts(home, home / "spaces" / "list.toml")


def test_a_list_that_is_named_must_be_there(home):
    with pytest.raises(Invalid, match="cannot be read"):
        load_mounts(home, home / "none.toml")


async def test_an_engine_that_is_not_there_is_refused_in_one_sentence(home, monkeypatch):
    monkeypatch.setenv("ROTA_EXECUTORS_CONTAINER_ENGINE", "/nonexistent/docker")
    sites = LocalSiteChecker(load_settings(str(home)))
    site = Site(executor="container", isolated=True, image="x@sha256:" + "0" * 64)
    with pytest.raises(Unavailable, match="container is not available on this machine: docker"):
        await sites.admit(site, SpaceRole.MAIN)


async def test_what_only_isolated_programs_need_is_asked_of_them_alone(home):
    sites = LocalSiteChecker(load_settings(str(home)))
    walls = MissingRequirement("bubblewrap", "/usr/bin", "install it", False, True)
    sites.try_out = lambda name: ExecutorTrial(sites.executors[name], [walls])
    await sites.admit(Site(executor="tmux"), SpaceRole.MAIN)
    with pytest.raises(
        Unavailable, match="^tmux with isolation is not available on this machine: bubblewrap"
    ):
        await sites.admit(Site(executor="tmux", isolated=True), SpaceRole.MAIN)


async def test_an_executor_that_is_gone_is_named_with_those_that_there_are(home):
    sites = LocalSiteChecker(load_settings(str(home)))
    known = "choose container, process, sandbox or tmux"
    with pytest.raises(Unavailable, match=f"there is no executor 'moon' here: {known}"):
        await sites.admit(Site(executor="moon"), SpaceRole.MAIN)


@pytest.mark.parametrize(
    ("named", "kind"),
    [("/opt/bin/podman", "podman"), ("/opt/bin/docker", "docker"), ("docker", "docker")],
)
def test_the_engine_is_the_one_that_is_named(named, kind):
    told = {"DOCKER_HOST": "unix:///run/docker.sock", "SECRET": "x", "PATH": "/mine"}
    engine = find_engine(ContainerSettings(engine=named), told)
    assert (engine.kind, engine.program.endswith(named)) == (kind, True)
    assert engine.env == {"DOCKER_HOST": "unix:///run/docker.sock", "PATH": SEARCH_PATH}


def test_users_in_containers_are_as_the_settings_say():
    assert find_engine(ContainerSettings(users="mapped"), {}).users == "mapped"
    assert find_engine(ContainerSettings(engine="docker"), {}).users == "own"
