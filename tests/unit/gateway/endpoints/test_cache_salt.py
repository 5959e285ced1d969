"""Salts of tenants: alike for all workers of an instance, unlike for every other."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headrace.gateway.endpoints.cache_salt import FILE, SECRET_BYTES, CacheSalt, load_secret


def test_a_tenants_salt_stays(tmp_path: Path) -> None:
    """Another worker, or the same one after a restart, makes the same salt; another instance another one."""
    first, again, elsewhere = CacheSalt(tmp_path), CacheSalt(tmp_path), CacheSalt(tmp_path / "other")
    (tmp_path / "other").mkdir()
    assert first("red") == first("red") == again("red")
    assert len({first("red"), first("blue"), elsewhere("red")}) == 3


def test_workers_that_start_at_once_share_one_secret(tmp_path: Path) -> None:
    """Whoever comes first makes it; it is for the owner's eyes, and nothing else is left behind."""
    with ThreadPoolExecutor(8) as pool:
        secrets = set(pool.map(lambda number: load_secret(tmp_path / FILE), range(32)))
    assert len(secrets) == 1
    assert len(secrets.pop()) == SECRET_BYTES
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0
