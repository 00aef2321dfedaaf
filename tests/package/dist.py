#!/usr/bin/env python3
"""Tests the files of `make dist`: installs each in a bare system and runs the program there.

    dist.py BUILD_FOLDER

Makes the files from BUILD_FOLDER, for the processor it is built for: another one than this machine's is emulated by qemu.
"""
import hashlib
import http.server
import io
import json
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
import zipfile

from bare_system import DEBIAN_ARCHITECTURES, BareSystem, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve()
ORACLE = ROOT / "tests/data/oracle"
MODEL = ORACLE / "models/qwen3-q8_0.gguf"
# Recorded greedy tokens up to a step where the two largest logits are closer than this. The CPU backend rounds the activations of
# quantized models to 8 bits.
LEAST_MARGIN = {MODEL.stem: 0.5, "qwen2-f16": 0.1}
IMAGE_USER = 65532
BUNDLE_OF_FEDORA = "etc/pki/tls/certs/ca-bundle.crt"


def only(folder, pattern):
    files = list(folder.glob(pattern))
    assert len(files) == 1, f"{pattern}: {files}"
    return files[0]


class Dist(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="zinc-dist-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.dist = cls.folder / "dist"
        run("cmake", "--build", BUILD, "--target", "pages", "portable")
        run(ROOT / "tools/make_dist.py", BUILD, cls.dist)
        cls.tarball = only(cls.dist, "zinc-*-linux-*.tar.gz")
        cls.processor = re.search(r"linux-(\w+)", cls.tarball.name)[1]
        cls.is_native = cls.processor == os.uname().machine
        cls.version = re.search(r"zinc-([\d.]+)-", cls.tarball.name)[1]
        cls.commit = run("git", "-C", ROOT, "rev-parse", "--short=12", "HEAD").strip()

    def setUp(self):
        self.roots = pathlib.Path(tempfile.mkdtemp(prefix="roots-", dir=self.folder))

    def glibc_alone(self):
        return BareSystem.with_glibc_alone(self.roots, self.processor, only(BUILD / "portable", "glibc-*"))

    def debian_11(self):
        return BareSystem.debian_11(self.roots, BUILD / f"portable/debian-11-{self.processor}.tar", self.processor)

    def check_program(self, system, zinc, *serve):
        """Version, one answer, and a server that answers requests, with the recorded tokens, and has the chat page."""
        models = [f"/{name}.gguf" for name in LEAST_MARGIN]
        for model in models:
            shutil.copy(f"{ORACLE}/models{model}", system.root)
        self.assertTrue(system.run(zinc, "--version").startswith(f"zinc {self.version} ("))
        self.assertNotEqual(system.run(zinc, "run", models[0], "Hi", "-n", "8", "--seed", "1").strip(), "")
        with system.serve(*(serve or (zinc, "serve")), *models) as server:
            reply = json.loads(server.get("/v1/chat/completions", {
                "model": MODEL.stem, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}))
            self.assertEqual(reply["usage"]["completion_tokens"], 4)
            self.assertIn("<title>", server.get("/"))
            for name, least_margin in LEAST_MARGIN.items():
                self.check_greedy(server, name, least_margin)

    def check_greedy(self, server, model, least_margin):
        n_compared = 0
        for prompt in json.loads((ORACLE / f"expected/{model}.json").read_text())["prompts"]:
            exact = prompt["exact"]
            n = next((i for i, margin in enumerate(exact["margin"]) if margin < least_margin), len(exact["margin"]))
            if n == 0:
                continue
            reply = json.loads(server.get("/completion", {"model": model, "prompt": prompt["tokens"], "n_predict": n, "temperature": 0,
                                                          "ignore_eos": True, "return_tokens": True}))
            self.assertEqual(reply["tokens"], exact["greedy"][:n], f"{model} {prompt['name']}")
            n_compared += n
        self.assertGreaterEqual(n_compared, 8, model)

    def test_tarball_runs_with_glibc_2_31_and_nothing_else(self):
        system = self.glibc_alone()
        with tarfile.open(self.tarball) as archive:
            archive.extractall(system.root)
        folder = f"/{self.tarball.name.removesuffix('.tar.gz')}"
        self.check_program(system, f"{folder}/bin/zinc")
        for page in ["share/man/man1/zinc.1", "share/zsh/site-functions/_zinc", "share/doc/zinc/copyright",
                     "share/doc/zinc/third-party.txt"]:
            self.assertGreater((system.root / folder[1:] / page).stat().st_size, 100, page)

    def test_deb_installs_on_debian_11(self):
        package = only(self.dist, "zinc_*.deb")
        fields = dict(re.findall(r"(?m)^ ?([A-Za-z-]+): (.*)$", run("dpkg-deb", "-I", package)))
        self.assertEqual(fields["Architecture"], DEBIAN_ARCHITECTURES[self.processor])
        self.assertEqual(fields["Depends"], "libc6 (>= 2.31), ca-certificates")
        system = self.debian_11()
        system.install_deb(package)
        self.check_program(system, "/usr/bin/zinc")

    def test_wheel_gives_the_command_zinc(self):
        wheel = only(self.dist, "zinc-*.whl")
        self.assertTrue(wheel.name.endswith(f"-py3-none-manylinux_2_31_{self.processor}.whl"))
        system = self.debian_11()
        shutil.copy(wheel, system.root / wheel.name)
        pip = system.make_venv()
        system.run(*pip, "install", "--no-index", f"/{wheel.name}")
        self.check_program(system, "/venv/bin/zinc")
        system.run(*pip, "uninstall", "-y", "zinc")
        self.assertFalse((system.root / "venv/bin/zinc").exists())

    def test_image_runs_its_entrypoint(self):
        """Unpacked as the OCI image specification says: by digests from index.json, layers in order."""
        layout = self.roots / "layout"
        with tarfile.open(only(self.dist, "zinc-*-oci-*.tar")) as archive:
            archive.extractall(layout)

        def blob(descriptor):
            contents = (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
            self.assertEqual(f"sha256:{hashlib.sha256(contents).hexdigest()}", descriptor["digest"])
            self.assertEqual(len(contents), descriptor["size"])
            return contents

        self.assertEqual(json.loads((layout / "oci-layout").read_text()), {"imageLayoutVersion": "1.0.0"})
        manifest = json.loads(blob(json.loads((layout / "index.json").read_text())["manifests"][0]))
        config = json.loads(blob(manifest["config"]))
        self.assertEqual(config["architecture"], DEBIAN_ARCHITECTURES[self.processor])
        root = self.roots / "image"
        root.mkdir()
        owners = {}
        for descriptor, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
            layer = subprocess.run(["gzip", "-dc"], input=blob(descriptor), capture_output=True, check=True).stdout
            self.assertEqual(f"sha256:{hashlib.sha256(layer).hexdigest()}", diff_id)
            subprocess.run(["tar", "-x", "-C", root], input=layer, check=True)
            with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
                owners |= {entry.name: (entry.uid, entry.gid) for entry in archive}
        self.assertEqual(config["config"]["User"], f"{IMAGE_USER}:{IMAGE_USER}")
        self.assertEqual([owners[name] for name in ["models", "home/zinc", "usr"]], [(IMAGE_USER, IMAGE_USER)] * 2 + [(0, 0)])
        certificates = (root / "etc/ssl/certs/ca-certificates.crt").read_text()
        self.assertEqual(certificates.count("BEGIN CERT"), len(list(pathlib.Path("/usr/share/ca-certificates/mozilla").glob("*.crt"))))
        system = BareSystem(root, self.processor)
        self.check_program(system, *config["config"]["Entrypoint"], *config["config"]["Entrypoint"], *config["config"]["Cmd"])

    def test_dockerfile_builds_on_the_image(self):
        """Both targets of deploy/Dockerfile, without a network; empty files stand for NVRTC's."""
        if not self.is_native:
            self.skipTest("the target cuda is for x86-64")
        storage = self.roots / "storage"
        buildah = ["buildah", "--root", storage, "--runroot", self.roots / "run", "--storage-driver", "vfs"]
        run(*buildah, "pull", "-q", f"oci-archive:{only(self.dist, 'zinc-*-oci-*.tar')}")
        libraries = self.roots / "nvrtc/nvidia/cu13/lib"
        libraries.mkdir(parents=True)
        names = ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"]
        for name in names:
            (libraries / name).write_text("")
        for target, context in [("cpu", ROOT / "deploy"), ("cuda", self.roots / "nvrtc")]:
            run(*buildah, "build", "--isolation", "chroot", "--format", "docker", "--target", target, "-t", target,
                "-f", ROOT / "deploy/Dockerfile", context)
            config = json.loads(run(*buildah, "inspect", "--type", "image", target))["Docker"]["config"]
            self.assertEqual(config["User"], f"{IMAGE_USER}:{IMAGE_USER}")
            self.assertEqual(config["Healthcheck"]["Test"], ["CMD", "/usr/bin/zinc", "ps"])
            self.assertEqual(list(config["Volumes"]), ["/models"])
        self.assertEqual(sorted(file.name for file in storage.rglob("usr/lib/x86_64-linux-gnu/libnvrtc*")), sorted(names))

    def test_same_build_gives_the_same_bytes(self):
        run(ROOT / "tools/make_dist.py", BUILD, self.roots / "again")
        sums = (self.dist / "SHA256SUMS").read_text()
        self.assertEqual((self.roots / "again/SHA256SUMS").read_text(), sums)
        self.assertEqual(len(sums.splitlines()), 4)
        run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=self.dist)

    def test_version_names_the_commit(self):
        with zipfile.ZipFile(only(self.dist, "zinc-*.whl")) as archive:
            program = archive.read(f"zinc-{self.version}.data/scripts/zinc")
        self.assertIn(self.commit.encode(), program)

    def test_https_is_verified_with_the_certificates_of_the_system(self):
        system = self.glibc_alone()
        shutil.copy(BUILD / "portable/zinc", system.root / "zinc")
        shutil.copy(MODEL, self.roots / "tiny.gguf")
        with self.https_server() as port:
            download = ["/zinc", "pull", f"https://localhost:{port}/tiny.gguf"]
            (system.root / "etc").mkdir()
            (system.root / "etc/hosts").write_text("127.0.0.1 localhost\n")
            with self.assertRaisesRegex(AssertionError, "no CA certificates"):
                system.run(*download)
            bundle = system.root / BUNDLE_OF_FEDORA
            bundle.parent.mkdir(parents=True)
            shutil.copy(self.roots / "certificate.pem", bundle)
            system.run(*download)
            self.assertEqual(len(list(system.root.glob("home/user/.cache/zinc/models/**/*tiny*.gguf"))), 1)

    def https_server(self):
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-addext",
            "subjectAltName=DNS:localhost", "-days", "2", "-keyout", self.roots / "key.pem", "-out", self.roots / "certificate.pem")
        return HttpsServer(self.roots)

    def test_gpu_drivers_can_be_opened(self):
        """The Vulkan loader and Mesa's software driver, a C++ library with its own libstdc++, in the statically linked program."""
        if not self.is_native:
            self.skipTest("the drivers of this machine are for another processor")
        said = subprocess.run([BUILD / "portable/zinc", "run", MODEL, "Hi", "-n", "4", "--backend", "vulkan:llvmpipe",
                               "--verbose", "--no-stdin"], capture_output=True, text=True, timeout=240, errors="replace")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("backend vulkan", said.stderr)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class HttpsServer(http.server.ThreadingHTTPServer):
    """Serves `folder` with its key.pem and certificate.pem; a `with` block gives the port."""

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), lambda *arguments: QuietHandler(*arguments, directory=folder))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
        self.socket = context.wrap_socket(self.socket, server_side=True)

    def handle_error(self, *_):  # a client that does not trust the certificate hangs up
        pass

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self.server_port

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
