"""Packages from the machine's own package manager: apt-get download into a cache folder; nothing is installed, no root is needed."""

import os
import re
import subprocess
import urllib.parse

BATCH_PACKAGES, BATCH_BYTES = 12, 8_000_000  # small enough for a line of progress every few seconds
# Names that a "*" of sources.tsv must not take: no language, dummy packages, texts not fit for everybody.
_NO_LANGUAGE = re.compile(r"-(?:all|common|off|ascii|iso3|bofh-excuses|debian-hints|mario|posix\S*|dev-all|za|in|en-za|l10n)$")


class FetchError(Exception):
    pass


class Candidate:
    def __init__(self, package, version, size):
        self.package, self.version, self.size = package, version, size


class Apt:
    def __init__(self, cache, say):
        self.debs = os.path.join(cache, "debs")
        self.part = os.path.join(self.debs, ".part")
        self.private = os.path.join(cache, "apt")
        self.say = say
        self.updated = False
        os.makedirs(self.part, exist_ok=True)
        self.options = ["-q", "-o", "Acquire::Retries=3", "-o", "APT::Get::List-Cleanup=false"]
        if os.geteuid() == 0:
            self.options += ["-o", "APT::Sandbox::User=root"]  # else apt warns that its own user cannot write here
        elif os.path.isdir(os.path.join(self.private, "lists", "partial")):
            self._use_private_lists()

    def _use_private_lists(self):
        for folder in ("lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(self.private, folder), exist_ok=True)
        self.options += ["-o", f"Dir::State::lists={self.private}/lists/", "-o", f"Dir::Cache={self.private}/cache/"]

    def _run(self, command, cwd=None):
        environment = dict(os.environ, LC_ALL="C.UTF-8", DEBIAN_FRONTEND="noninteractive")
        try:
            done = subprocess.run(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True)
        except FileNotFoundError:
            raise FetchError(f"{command[0]} was not found; the corpus comes from Debian packages and needs a Debian or Ubuntu machine")
        return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")

    def update(self):
        """Refreshes the package lists, once a run: the machine's as root, else a private copy below the cache."""
        if self.updated:
            return False
        self.updated = True
        if os.geteuid() != 0:
            self._use_private_lists()
        self.say("apt-get update (some packages are not in the package lists)")
        code, _, errors = self._run(["apt-get", *self.options, "update"])
        if code:
            self.say(f"warning: apt-get update failed: {_first_error(errors)}")
        return code == 0

    def candidates(self, packages):
        """package -> Candidate, for those the package lists offer."""
        found = {}
        packages = list(packages)
        if not packages:
            return found
        _, output, _ = self._run(["apt-cache", *self.options, "show", "--no-all-versions", *packages])
        for record in output.split("\n\n"):
            fields = dict(re.findall(r"^(Package|Version|Size|Filename): *(.*)$", record, re.M))
            if "Filename" in fields and "Size" in fields:  # a record without them is an installed package no archive has
                found.setdefault(fields["Package"], Candidate(fields["Package"], fields["Version"], int(fields["Size"])))
        return found

    def expand(self, pattern):
        """[(package, suffix)] for a name with one "*" at its end."""
        prefix = pattern.rstrip("*")
        _, output, _ = self._run(["apt-cache", *self.options, "pkgnames", prefix])
        names = sorted(name for name in output.split() if re.fullmatch(r"[a-z]{2,3}(-[a-z]{2,8}){0,2}", name[len(prefix) :]))
        return [(name, name[len(prefix) :]) for name in names if not _NO_LANGUAGE.search(name)]

    def cached(self):
        """package -> (path, version) of the whole .deb files in the cache."""
        found = {}
        for name in sorted(os.listdir(self.debs)):
            match = re.fullmatch(r"([^_]+)_([^_]+)_[^_]+\.deb", name)
            if match:
                found[match.group(1)] = (os.path.join(self.debs, name), urllib.parse.unquote(match.group(2)))
        return found

    def download(self, candidates):
        """Fetches the candidates; returns package -> why, for those that could not be had."""
        failed, done_bytes, done = {}, 0, 0
        total = sum(c.size for c in candidates)
        for batch in _batches(candidates):
            errors = self._get(batch)
            if errors and len(batch) > 1:  # one bad name stops apt for all: fetch one by one
                errors = {}
                for candidate in batch:
                    errors.update(self._get([candidate]))
            if errors and self.update():
                again = [c for c in batch if c.package in errors]
                errors = {}
                for candidate in again:
                    errors.update(self._get([candidate]))
            failed.update(errors)
            done += len(batch)
            done_bytes += sum(c.size for c in batch if c.package not in errors)
            names = batch[0].package + (f" … {batch[-1].package}" if len(batch) > 1 else "")
            self.say(f"download [{done:3}/{len(candidates)}] {done_bytes / 1e6:6.1f} of {total / 1e6:.1f} MB  {names}")
        return failed

    def _get(self, batch):
        for name in os.listdir(self.part):
            os.unlink(os.path.join(self.part, name))
        code, _, errors = self._run(["apt-get", *self.options, "download", *(c.package for c in batch)], cwd=self.part)
        # apt checks sizes and sums and leaves only whole files under their final name when it ends well.
        got = set()
        if code == 0:
            for name in sorted(os.listdir(self.part)):
                if name.endswith(".deb"):
                    os.replace(os.path.join(self.part, name), os.path.join(self.debs, name))
                    got.add(name.split("_")[0])
        return {c.package: _first_error(errors) for c in batch if c.package not in got}


def _first_error(text):
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return next((line for line in lines if line.startswith("E:")), lines[-1] if lines else "apt gave no reason")


def _batches(candidates):
    batch, size = [], 0
    for candidate in candidates:
        if batch and (len(batch) >= BATCH_PACKAGES or size + candidate.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(candidate)
        size += candidate.size
    if batch:
        yield batch
