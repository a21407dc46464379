"""What counts as a secret by its name: the list, the user's additions, and ordinary names that must pass."""

from __future__ import annotations

import pytest

from cache.secrets import is_secret

SECRET = (
    *(".env", ".env.local", ".env.production", ".ENV", ".envrc", "prod.env", ".env~"),
    *(".env.bak", ".#.env", "#.env#", ".env.swp", "app/.env", "a\\b\\.env"),
    *(".envs/local/django", "id_rsa", "id_rsa.pub", "id_ed25519", "ID_RSA", "id_rsa.old"),
    *("server.pem", "cert.PEM", "tls/server.key", "server.key.bak", "server.pem~"),
    *("master.key", "store.p12", "a.pfx", "a.jks", "a.keystore", "a.ppk", "a.kdbx", "a.crt"),
    *("a.cer", "a.der", "a.gpg", "AuthKey_X.p8", ".netrc", "_netrc", ".npmrc", ".pypirc"),
    *(".htpasswd", ".pgpass", ".git-credentials", ".dockercfg", ".docker/config.json"),
    *(".kube/config", "kubeconfig", "prod.kubeconfig", "kubeconfig.yaml", "terraform.tfstate"),
    *("terraform.tfstate.backup", "prod.tfvars", "prod.tfvars.json", ".terraformrc"),
    *("service-account.json", "service_account_prod.json", "client_secret_1.json"),
    *("credentials", "credentials.json", "config/credentials.yml.enc", ".aws/config"),
    *(".aws/credentials", ".ssh/config", ".ssh/anything.py", ".gnupg/x", "secrets.yml"),
    *("secrets.yaml", "secrets.json", "my-secrets.yaml", "app-secret.toml", "secret.txt"),
    *("passwords.txt", "db_password.txt", "api_keys.json", "private_key.txt"),
    *("secrets/prod.yaml", "wp-config.php", ".bash_history", ".vault-token", "auth.json"),
    *("local.settings.json", ".env.", "/home/u/proj/.env", "C:\\proj\\.env"),
    *(".cargo/credentials.toml", ".ｅｎｖ"),
)
ORDINARY = (
    *("environment.py", "env.py", "keyboard.py", "monkey.py", "keys.py", "key.py"),
    *("secrets.py", "cache/secrets.py", "credentials.ts", "password_field.dart"),
    *("secret_manager.go", "tokenizer.json", "tokenizer.py", "token.rs", "pem.py", "x509.go"),
    *("env/bin/x.py", "environment.yml", "README.md", "package.json", "certs.py"),
    *("keyframes.css", "turkey.txt", "src/credentials/provider.py", "secrets/engine.go"),
    *("envelope.md", "denver.txt", "settings.py", "config.toml", "Makefile", ".gitignore"),
    *("hotkeys.json", "a.key.py", "my.environment"),
)


@pytest.mark.parametrize("path", [*SECRET, ".env "])
def test_secrets_are_known_by_name(path: str) -> None:
    assert is_secret(path)


@pytest.mark.parametrize("path", ORDINARY)
def test_ordinary_names_pass(path: str) -> None:
    assert not is_secret(path)


def test_the_users_patterns_add_and_never_replace() -> None:
    assert not is_secret("notes/plan.md")
    assert is_secret("notes/plan.md", ["plan.*"])
    assert is_secret("notes/plan.md", ["NOTES"])
    assert is_secret("a/notes/plan.md", ["notes/*.md"])
    assert is_secret("a\\notes\\plan.md", ["notes/"])
    assert is_secret(".env", ["plan.*"])
    assert is_secret(".env", ["!.env"])
    assert is_secret(".env", [""])
    assert not is_secret("main.py", ["", "/"])


@pytest.mark.parametrize("pattern", ["*.py", "x*", "x.py", "?.py", "plan*.md", "config/*.yml", "plan/x.py"])
def test_the_users_pattern_for_files_spares_the_directories_they_are_in(pattern: str) -> None:
    for directory in ("src", "config", "plan", "plans"):
        assert not is_secret(directory, [pattern], is_directory=True)
    assert not is_secret("plans/notes.md", [pattern])


@pytest.mark.parametrize(
    "pattern",
    ["private", "private/", "/private/", "./private", "**/private", "a/private", "A\\Private/", "a/pri*"],
)
def test_the_users_pattern_for_directories_holds_for_all_in_them(pattern: str) -> None:
    assert is_secret("w/a/private", [pattern], is_directory=True)
    assert is_secret("w/a/private/b/c.py", [pattern])
    assert is_secret("w/a/private/b", [pattern], is_directory=True)
    assert not is_secret("w/a/public/b/c.py", [pattern])


def test_a_pattern_with_a_slash_at_its_end_is_for_directories_only() -> None:
    assert not is_secret("w/private", ["private/"])
    assert is_secret("w/private", ["private"])


def test_hostile_names_are_judged_without_error() -> None:
    for path in ("", "/", "...", "\n", "a\nb/.env", "\udce9.py", "a" * 5000, "[", "a/[!/x.py", "\x00"):
        assert isinstance(is_secret(path, ["[", "*" * 20 + "b"]), bool)
    assert is_secret("a\nb/.env")
