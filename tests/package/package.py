#!/usr/bin/env python3
"""Tests `make install` and the Debian package: installs them below a folder, checks the files, runs the program.

    package.py BUILD_FOLDER

BUILD_FOLDER contains the built program. Exits with 77 if Debian's tools are not installed.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv[1]).resolve()
PAGES = ["share/man/man1/zinc.1", "share/bash-completion/completions/zinc", "share/fish/vendor_completions.d/zinc.fish",
         "share/doc/zinc/copyright"]


def run(*words, **options):
    end = subprocess.run(words, capture_output=True, text=True, timeout=240, **options)
    if end.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}: {end.returncode}\n{end.stdout}\n{end.stderr}")
    return end.stdout


def needed_libraries(program):
    return re.findall(r"\(NEEDED\)\s+Shared library: \[([^]]+)\]", run("readelf", "-d", program))


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="zinc-package-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        run("cmake", "--build", BUILD, "--target", "pages")

    def check_files(self, prefix, zsh_folder):
        for page in PAGES + [f"share/zsh/{zsh_folder}/_zinc"]:
            self.assertGreater((prefix / page).stat().st_size, 100, page)
        clean = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin"}
        self.assertRegex(run(prefix / "bin" / "zinc", "--version", env=clean), r"^zinc \d+\.\d+\.\d+ \(")
        self.assertIn("smollm2-135m-instruct", run(prefix / "bin" / "zinc", "list", "--names", env=clean))

    def test_installation_has_completions_and_man_page(self):
        stage = self.folder / "stage"
        said = run("cmake", "--install", BUILD, "--prefix", "/usr/local", env={**os.environ, "DESTDIR": str(stage)})
        self.check_files(stage / "usr/local", "site-functions")
        self.assertIn("XDG_DATA_DIRS", said, "fish does not search /usr/local by default")

    def test_package_lists_its_dependencies_and_runs(self):
        run("cpack", "-G", "DEB", "-B", self.folder / "deb", cwd=BUILD)
        packages = list((self.folder / "deb").glob("zinc_*.deb"))
        self.assertEqual(len(packages), 1)
        root = self.folder / "root"
        run("dpkg-deb", "-x", packages[0], root)
        self.check_files(root / "usr", "vendor-completions")
        fields = dict(re.findall(r"(?m)^ ?([A-Za-z-]+): (.*)$", run("dpkg-deb", "-I", packages[0])))
        self.assertRegex(fields["Maintainer"], r"<[^<>@]+@[^<>@]+>$")
        self.assertIn("libvulkan1", fields["Recommends"])
        self.assertIn("ca-certificates", fields["Depends"])
        depended = {re.split(r"[ (:|]", part.strip())[0] for part in fields["Depends"].split(",")}
        for library in needed_libraries(root / "usr/bin/zinc"):
            file = re.search(rf"(?m)^\s*{re.escape(library)} .* => (\S+)$", run("/sbin/ldconfig", "-p"))
            if not file:  # the dynamic linker itself
                continue
            owners = {owner for path in {file[1], os.path.realpath(file[1]), "/usr" + file[1]}
                      for owner in self.owners_of(path)}
            self.assertTrue(owners & depended, f"{library} of {owners} is not among {depended}")

    @staticmethod
    def owners_of(path):
        end = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True)
        return {line.split(":")[0] for line in end.stdout.splitlines()}


if __name__ == "__main__":
    missing = [tool for tool in ["dpkg-deb", "dpkg-shlibdeps", "cpack", "readelf", "file"] if not shutil.which(tool)]
    if missing:
        print("not installed:", ", ".join(missing))
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
