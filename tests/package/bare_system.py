"""Bare systems to install zinc in: root folders with nothing but glibc 2.31, or Debian 11 with Python, entered by chroot.

A system for another processor is run by qemu's static emulator inside it, one program at a time: it cannot start further ones of
that processor. Entering a root folder needs root or user namespaces.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import urllib.request

DEBIAN = os.environ.get("ZINC_DEBIAN_MIRROR", "http://deb.debian.org/debian")
DEBIAN_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
EMULATED_CPU = {"x86_64": "Haswell", "aarch64": "cortex-a76"}  # the oldest that have the required instructions
TIMEOUT_S = 240
ENTER = 'mkdir -p "$0/proc" "$0/dev" && mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'


def run(*words, **options):
    end = subprocess.run([str(word) for word in words], capture_output=True, timeout=TIMEOUT_S, **options)
    if end.returncode != 0:
        text = (end.stdout + end.stderr).decode(errors="replace")
        raise AssertionError(f"{' '.join(map(str, words))}: {end.returncode}\n{text[-4000:]}")
    return end.stdout.decode(errors="replace")


class BareSystem:
    """A root folder that commands run in."""

    def __init__(self, root, processor):
        self.root = root
        self.emulator = []
        if processor != os.uname().machine:
            self.emulator = ["/usr/bin/qemu-static", "-cpu", EMULATED_CPU[processor]]
            (root / "usr/bin").mkdir(parents=True, exist_ok=True)
            shutil.copy(f"/usr/bin/qemu-{processor}-static", root / "usr/bin/qemu-static")
        for name in ["tmp", "home/user"]:
            (root / name).mkdir(parents=True, exist_ok=True)

    @staticmethod
    def with_glibc_alone(folder, processor, sysroot):
        """`sysroot` has the files of Debian 11's libc6 (tools/link_portable.py unpacked them)."""
        root = folder / "glibc-alone"
        for name in ["lib", "lib64"]:
            if (sysroot / name).exists():
                shutil.copytree(sysroot / name, root / name, symlinks=True)
        return BareSystem(root, processor)

    @staticmethod
    def debian_11(folder, cache, processor):
        """The smallest Debian 11 with Python's venv and certificates; `cache` is its archive, made once. For another processor
        the packages are unpacked and not configured, and dpkg does not know of them."""
        if not cache.exists():
            part = cache.with_suffix(".part.tar")
            variant = "essential" if processor == os.uname().machine else "extract"
            run("mmdebstrap", "--quiet", f"--variant={variant}", "--include=python3-venv,ca-certificates",
                f"--architectures={DEBIAN_ARCHITECTURES[processor]}", "bullseye", part, DEBIAN)
            part.rename(cache)
        root = folder / "debian-11"
        root.mkdir()
        run("tar", "-xf", cache, "-C", root, "--exclude=./dev/*")
        return BareSystem(root, processor)

    @staticmethod
    def as_root(*words):
        own_root = [] if os.getuid() == 0 else ["--map-root-user"]
        return ["unshare", *own_root, "--mount", *map(str, words)]

    def command(self, *words):
        return self.as_root("sh", "-c", ENTER, self.root, *self.emulator, *words)

    def environment(self, **more):
        return {"HOME": "/home/user", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **more}

    def run(self, *words, **options):
        environment = self.environment(**options.pop("environment", {}))
        return run(*self.command(*words), env=environment, **options)

    def install_deb(self, package):
        """By the system's dpkg, or for another processor by this machine's, which then finds no dependencies (see debian_11)."""
        if self.emulator:
            run(*self.as_root("dpkg", f"--root={self.root}", f"--log={self.root}/dpkg.log", "--force-architecture",
                              "--force-depends", "--install", package))
        else:
            shutil.copy(package, self.root / "zinc.deb")
            self.run("dpkg", "--install", "/zinc.deb")

    def make_venv(self):
        """Makes /venv and gives the command of its pip. Installing pip there starts programs: under qemu pip runs from its wheel."""
        if not self.emulator:
            self.run("/usr/bin/python3", "-m", "venv", "/venv")
            return ["/venv/bin/pip"]
        self.run("/usr/bin/python3", "-m", "venv", "--without-pip", "/venv")
        wheel = next(self.root.glob("usr/share/python-wheels/pip-*.whl"))
        return ["/venv/bin/python3", f"/usr/share/python-wheels/{wheel.name}/pip"]

    def serve(self, *words):
        return Server(self.command(*words, "--port", "0"), self.environment())


class Server:
    """`zinc serve` in a bare system, stopped at the end of a `with` block."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        seen = ""
        for line in self.process.stdout:
            seen += line
            if match := re.search(r"http://(?:127\.0\.0\.1|0\.0\.0\.0|localhost):(\d+)", line):
                self.address = f"http://127.0.0.1:{match[1]}"
                return
        raise AssertionError(f"{' '.join(command)} ended before it listened:\n{seen}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.stdout.read()
        self.process.stdout.close()
        self.process.wait(timeout=TIMEOUT_S)

    def get(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"content-type": "application/json"} if data else {})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            return reply.read().decode()
