"""Files that may hold secrets: never completed, never in a prompt, an index or a log.

Judged by name alone, since the point is not to read them. Source code is told from data by its suffix, so
that ``secrets.py`` is a module and ``secrets.yml`` a secret.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache

ALWAYS = (
    *(".env*", "*.env"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "authorized_keys", "known_hosts"),
    *("*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.pkcs12", "*.ppk", "*.jks", "*.keystore", "*.truststore"),
    *("*.crt", "*.cer", "*.cert", "*.der", "*.csr", "*.p7b", "*.p7c", "*.mobileprovision", "*.keychain"),
    *("*.gpg", "*.pgp", "*.kdb", "*.kdbx", "*.agilekeychain", "*.ovpn", "*.rdp"),
    *(".netrc", "_netrc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".gem", ".htpasswd", ".pgpass"),
    *(".my.cnf", ".mylogin.cnf", ".s3cfg", ".boto", ".dockercfg", ".dockerconfigjson", ".git-credentials"),
    *(".terraformrc", "terraform.rc", "*.tfstate", "*.tfstate.*", "*.tfvars", "*.tfvars.json"),
    *("kubeconfig", "*.kubeconfig", "kubeconfig.*", "service-account*.json", "service_account*.json"),
    *("serviceaccount*.json", "client_secret*.json", "gcp-key*.json", "auth.json", "local.settings.json"),
    *(".vault-token", ".vault_pass*", "vault_pass*", ".token", "*.token", ".rhosts", "wp-config.php"),
    *(".bash_history", ".zsh_history", ".sh_history", ".psql_history", ".mysql_history", ".python_history"),
)
UNLESS_SOURCE = (
    *("*secret*", "*credential*", "*passwd*", "*password*", "*apikey*", "*api_key*", "*api-key*"),
    *("*private_key*", "*private-key*", "*privatekey*"),
)
DIRECTORIES_UNLESS_SOURCE = ("secret", "secrets", "credentials", "private-keys", "private_keys")
DIRECTORIES = (
    *(".ssh", ".aws", ".azure", ".gnupg", ".gcloud", ".kube", ".docker", ".env*", ".secrets", ".vault"),
    *("*.keychain", "*.agilekeychain", ".password-store"),
)
SOURCE_SUFFIXES = frozenset(
    {
        *("py", "pyi", "pyx", "js", "jsx", "mjs", "cjs", "ts", "tsx", "vue", "svelte"),
        *("java", "kt", "kts", "scala", "groovy", "clj", "cljs", "go", "rs", "c", "h", "cc"),
        *("cpp", "cxx", "hpp", "hh", "hxx", "m", "mm", "swift", "cs", "fs", "vb", "rb"),
        *("php", "pl", "pm", "lua", "r", "jl", "dart", "ex", "exs", "erl", "hrl", "hs"),
        *("elm", "ml", "mli", "nim", "zig", "d", "pas", "f90", "sol", "sql", "sh", "bash"),
        *("zsh", "fish", "ps1", "css", "scss", "less", "html", "htm", "proto", "graphql"),
        *("cmake", "el", "lisp", "scm", "vim"),
    }
)
_BACKUP = re.compile(r"(~|\.(bak|backup|old|orig|save|saved|copy|swp|swo|tmp|dist|\d+))$")


def is_secret(path: str, extra_patterns: Sequence[str] = (), is_directory: bool = False) -> bool:
    """Whether a path is on the list, or on the user's addition to it (``is_named``).

    ``path`` is absolute or relative, with either separator. Of a directory: whether nothing in it may be read.
    """
    parts = _parts(path)
    if not parts:
        return False
    *directories, name = (*parts, "") if is_directory else parts
    if any(_matches(DIRECTORIES, part) for part in directories):
        return True
    if not is_directory and _is_secret_file(directories, name):
        return True
    return is_named(path, extra_patterns, is_directory)


def is_named(path: str, patterns: Sequence[str], is_directory: bool = False) -> bool:
    """Whether one of the user's patterns names a path or a directory that it lies in.

    Shell patterns, without regard to case: for a name (``plan.*``), or, with a slash within, for the end of a
    path (``config/*.yml``); one with a slash at its end is for directories only.
    """
    names, directory_names, paths, directory_paths = _sorted(tuple(patterns))
    parts = _parts(path)
    above = len(parts) if is_directory else len(parts) - 1
    if any(_matches(names, part) for part in parts) or any(
        _matches(directory_names, part) for part in parts[:above]
    ):
        return True
    if not paths and not directory_paths:
        return False
    return any(
        _matches(paths, piece) or (end <= above and _matches(directory_paths, piece))
        for end in range(2, len(parts) + 1)
        for start in range(end - 1)
        for piece in ("/".join(parts[start:end]),)
    )


def _is_secret_file(directories: Sequence[str], name: str) -> bool:
    names = _with_originals(name)
    if any(_matches(ALWAYS, candidate) for candidate in names):
        return True
    is_source = names[-1].rpartition(".")[2] in SOURCE_SUFFIXES and "." in names[-1].lstrip(".")
    return not is_source and (
        _matches(UNLESS_SOURCE, name)
        or any(_matches(DIRECTORIES_UNLESS_SOURCE, part) for part in directories)
    )


def _parts(path: str) -> list[str]:
    normal = unicodedata.normalize("NFKC", path).casefold().replace("\\", "/")
    return [part.rstrip(". ") for part in normal.split("/") if part.rstrip(". ")]


@lru_cache(maxsize=32)
def _sorted(patterns: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The user's patterns: for names, for names of directories, for paths, for paths of directories."""
    kinds: tuple[list[str], ...] = ([], [], [], [])
    for pattern in patterns:
        normal = unicodedata.normalize("NFKC", pattern).casefold().replace("\\", "/")
        while normal.startswith(("/", "./", "**/")):
            normal = normal.partition("/")[2]
        shown = normal.rstrip("/")
        if shown:
            kinds[2 * ("/" in shown) + (shown != normal)].append(shown)
    return tuple(tuple(kind) for kind in kinds)


def _with_originals(name: str) -> list[str]:
    """A name, and what it was a backup or an editor's swap file of."""
    names = [name]
    while True:
        shorter = _BACKUP.sub("", names[-1].strip("#").removeprefix(".#"))
        if shorter in ("", names[-1]):
            return names
        names.append(shorter)


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return _compiled(patterns).match(name) is not None


@lru_cache(maxsize=32)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(translate(pattern) for pattern in patterns if pattern) or r"(?!)")
