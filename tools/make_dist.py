#!/usr/bin/env python3
"""Writes the release files of one processor: a tarball, a Debian package, a Python wheel, an OCI image, and SHA256SUMS.

    make_dist.py BUILD_FOLDER OUT_FOLDER

BUILD_FOLDER has the built targets `pages` and `portable`. All four carry the same program, man page and completions. The same
BUILD_FOLDER gives the same bytes: times are those of the commit (or $SOURCE_DATE_EPOCH), entries are sorted, owners are root.
"""
import base64
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUMMARY = "runs language models on this machine"
OLDEST_GLIBC = "2.31"
DEBIAN_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # also OCI's names
CERTIFICATES = pathlib.Path("/usr/share/ca-certificates/mozilla")  # of the package, without what this machine adds
# Debian packages whose code is in the program: their license texts must be with it. The chat page has those of its packages.
LINKED_PACKAGES = ["libboost[0-9]*-dev", "libbsd-dev", "libcli11-dev", "libedit-dev", "libfmt-dev", "libmd-dev", "libncurses-dev",
                   "libssl-dev", "libstdc++-[0-9]*-dev", "zlib1g-dev"]

IMAGE_USER = 65532  # not root; a volume mounted at /models gets this owner
IMAGE_FILES = {
    "etc/passwd": f"root:x:0:0:root:/root:/usr/bin/false\nzinc:x:{IMAGE_USER}:{IMAGE_USER}:zinc:/home/zinc:/usr/bin/false\n",
    "etc/group": f"root:x:0:\nzinc:x:{IMAGE_USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    # NVIDIA's container runtime then mounts the driver where Debian's glibc looks for it.
    "etc/debian_version": pathlib.Path("/etc/debian_version").read_text(),
}
IMAGE_LINKS = {"lib": "usr/lib", "lib64": "usr/lib64"}
IMAGE_CONFIG = {
    "Entrypoint": ["/usr/bin/zinc"],
    # The port can be reached only as far as whoever starts the container publishes it.
    "Cmd": ["serve", "--host", "0.0.0.0", "--force-public"],
    "User": f"{IMAGE_USER}:{IMAGE_USER}",
    "Env": ["PATH=/usr/bin", "HOME=/home/zinc", "XDG_CACHE_HOME=/models", "NVIDIA_VISIBLE_DEVICES=all",
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility"],
    "ExposedPorts": {"8080/tcp": {}},
    "Volumes": {"/models": {}},
}


def output_of(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True, **options).stdout


class Release:
    """What is released: version, processor, time, and the installed files below `stage`."""

    def __init__(self, build, stage):
        self.build, self.stage = build, stage
        self.version = re.search(r"(?m)^CMAKE_PROJECT_VERSION:\w+=(.+)$", (build / "CMakeCache.txt").read_text())[1]
        header = (build / "portable/zinc").read_bytes()[:20]
        self.processor = {62: "x86_64", 183: "aarch64"}[int.from_bytes(header[18:20], "little")]  # ELF's e_machine
        self.architecture = DEBIAN_ARCHITECTURES[self.processor]
        self.epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or output_of("git", "-C", ROOT, "log", "-1", "--format=%ct"))

    def install(self):
        environment = {**os.environ, "DESTDIR": str(self.stage)}
        output_of("cmake", "--install", self.build, "--prefix", "/usr", env=environment)
        shutil.copyfile(self.build / "portable/zinc", self.stage / "usr/bin/zinc")
        (self.stage / "usr/share/doc/zinc/third-party.txt").write_text(self.third_party_licenses())

    def third_party_licenses(self):
        texts = {"curl": next(self.build.glob("portable/curl-*/curl/COPYING")).read_text()}
        for package in LINKED_PACKAGES:
            found = sorted(pathlib.Path("/usr/share/doc").glob(f"{package}/copyright"))
            if not found:
                sys.exit(f"/usr/share/doc/{package}/copyright is missing: the license must be distributed with the program")
            texts[found[-1].parent.name] = found[-1].read_text()
        return "\n".join(f"{name}\n{'=' * len(name)}\n\n{text}" for name, text in texts.items())

    def files(self):
        """(path below the prefix, contents, mode) of what is installed, sorted; for a prefix other than /usr."""
        for file in sorted(path for path in (self.stage / "usr").rglob("*") if path.is_file()):
            name = str(file.relative_to(self.stage / "usr"))
            name = name.replace("zsh/vendor-completions/", "zsh/site-functions/")
            yield name, file.read_bytes(), 0o755 if name.startswith("bin/") else 0o644


class Tar:
    """A tar archive in memory: files in the order given with the folders they need, one time, owner root."""

    def __init__(self, epoch):
        self.epoch, self.bytes, self.folders = epoch, io.BytesIO(), set()
        self.archive = tarfile.open(fileobj=self.bytes, mode="w", format=tarfile.GNU_FORMAT)

    def entry(self, name, kind, mode, size=0):
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.size, entry.mtime = kind, mode, size, self.epoch
        entry.uname = entry.gname = "root"
        return entry

    def folder(self, name, mode=0o755, owner=0):
        for path in [*reversed(pathlib.PurePosixPath(name).parents), name]:
            if str(path) != "." and str(path) not in self.folders:
                self.folders.add(str(path))
                entry = self.entry(str(path), tarfile.DIRTYPE, mode if path == name else 0o755)
                if path == name and owner:
                    entry.uid = entry.gid = owner
                    entry.uname = entry.gname = ""
                self.archive.addfile(entry)

    def file(self, name, contents, mode=0o644):
        self.folder(str(pathlib.PurePosixPath(name).parent))
        self.archive.addfile(self.entry(name, tarfile.REGTYPE, mode, len(contents)), io.BytesIO(contents))

    def link(self, name, target):
        entry = self.entry(name, tarfile.SYMTYPE, 0o777)
        entry.linkname = target
        self.archive.addfile(entry)

    def finish(self):
        self.archive.close()
        return self.bytes.getvalue()


def compressed(contents):
    return gzip.compress(contents, 9, mtime=0)


def sha256(contents):
    return hashlib.sha256(contents).hexdigest()


def write_tarball(release, out):
    name = f"zinc-{release.version}-linux-{release.processor}"
    tar = Tar(release.epoch)
    for path, contents, mode in release.files():
        tar.file(f"{name}/{path}", contents, mode)
    (out / f"{name}.tar.gz").write_bytes(compressed(tar.finish()))


def write_deb(release, out):
    """As cmake/package.cmake describes the package, with the portable program: it depends on glibc alone."""
    with tempfile.TemporaryDirectory() as work:
        config = pathlib.Path(work) / "config.cmake"
        settings = {
            "CPACK_INSTALL_CMAKE_PROJECTS": "", "CPACK_INSTALLED_DIRECTORIES": f"{release.stage}/usr;/usr",
            "CPACK_PACKAGING_INSTALL_PREFIX": "/", "CPACK_STRIP_FILES": "OFF", "CPACK_DEBIAN_PACKAGE_SHLIBDEPS": "OFF",
            "CPACK_DEBIAN_PACKAGE_ARCHITECTURE": release.architecture,
            "CPACK_DEBIAN_PACKAGE_DEPENDS": f"libc6 (>= {OLDEST_GLIBC}), ca-certificates",
        }
        lines = [f'include("{release.build}/CPackConfig.cmake")', *(f'set({name} "{value}")' for name, value in settings.items())]
        config.write_text("\n".join(lines) + "\n")
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(release.epoch)}
        output_of("cpack", "-G", "DEB", "-B", work, "--config", config, env=environment)
        for package in pathlib.Path(work).glob("*.deb"):
            shutil.copyfile(package, out / package.name)


def write_wheel(release, out):
    """pip puts data/scripts into the environment's bin/, data/data below the environment."""
    tag = f"py3-none-manylinux_{OLDEST_GLIBC.replace('.', '_')}_{release.processor}"
    name = f"zinc-{release.version}"
    files = []
    for path, contents, mode in release.files():
        folder = "scripts" if path.startswith("bin/") else "data"
        files.append((f"{name}.data/{folder}/{path.removeprefix('bin/')}", contents, mode))
    metadata = f"Metadata-Version: 2.1\nName: zinc\nVersion: {release.version}\nSummary: {SUMMARY}\nLicense: MIT\n"
    wheel = f"Wheel-Version: 1.0\nGenerator: make_dist.py\nRoot-Is-Purelib: false\nTag: {tag}\n"
    readme = (ROOT / "README.md").read_text()
    files.append((f"{name}.dist-info/METADATA", f"{metadata}Description-Content-Type: text/markdown\n\n{readme}".encode(), 0o644))
    files.append((f"{name}.dist-info/WHEEL", wheel.encode(), 0o644))
    record = ""
    for path, contents, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(contents)}\n"
    record += f"{name}.dist-info/RECORD,,\n"
    files.append((f"{name}.dist-info/RECORD", record.encode(), 0o644))
    with zipfile.ZipFile(out / f"{name}-{tag}.whl", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, contents, mode in files:
            entry = zipfile.ZipInfo(path, time.gmtime(release.epoch)[:6])
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            archive.writestr(entry, contents)


def system_layer(release):
    """glibc as installed on this machine for the processor, and the certificates that TLS needs."""
    tar = Tar(release.epoch)
    for name in ["home", "proc", "root", "sys"]:
        tar.folder(name)
    for name in ["home/zinc", "models"]:
        tar.folder(name, owner=IMAGE_USER)
    tar.folder("tmp", 0o1777)
    for name in ["usr/lib", "usr/lib64"]:
        tar.folder(name)
    for name, target in IMAGE_LINKS.items():
        tar.link(name, target)
    for name, text in sorted(IMAGE_FILES.items()):
        tar.file(name, text.encode())
    certificates = sorted(CERTIFICATES.glob("*.crt"))
    if not certificates:
        sys.exit(f"{CERTIFICATES} has no certificates: install the package ca-certificates")
    tar.file("etc/ssl/certs/ca-certificates.crt", b"".join(file.read_bytes() for file in certificates))
    package = f"libc6:{release.architecture}"
    for path in sorted(output_of("dpkg-query", "-L", package).split()):
        if not re.search(r"/lib[^/]*/([^/]+/)?[^/]+\.so[.\d]*$|/copyright$", path) or "/gconv/" in path:
            continue
        name = re.sub(r"^/(lib\w*/)", r"usr/\1", path).removeprefix("/")
        if os.path.islink(path):
            tar.folder(str(pathlib.PurePosixPath(name).parent))
            tar.link(name, re.sub(r"^/(lib\w*/)", r"/usr/\1", os.readlink(path)))
        else:
            tar.file(name, pathlib.Path(path).read_bytes(), 0o755)
    return tar.finish(), output_of("dpkg-query", "-W", "-f", "${Version}", package)


def program_layer(release):
    tar = Tar(release.epoch)
    for path, contents, mode in release.files():
        if not path.startswith("share/") or path.startswith("share/doc/"):  # nobody reads man pages there
            tar.file(f"usr/{path}", contents, mode)
    return tar.finish()


def write_image(release, out):
    """An OCI image layout as a tar archive; also readable by older `docker load`, which wants manifest.json."""
    system, glibc_version = system_layer(release)
    layers = [system, program_layer(release)]
    tar, created = Tar(release.epoch), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.epoch))
    blobs = {}

    def blob(kind, contents):
        digest = sha256(contents)
        blobs[f"blobs/sha256/{digest}"] = contents
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(contents)}

    def text(value):
        return json.dumps(value, sort_keys=True).encode()

    labels = {"org.opencontainers.image.title": "zinc", "org.opencontainers.image.version": release.version,
              "org.opencontainers.image.licenses": "MIT", "org.opencontainers.image.description": SUMMARY,
              "zinc.glibc": glibc_version}
    config = blob("config.v1+json", text({
        "architecture": release.architecture, "os": "linux", "created": created, "config": {**IMAGE_CONFIG, "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer)}" for layer in layers]},
        "history": [{"created": created, "created_by": "make_dist.py"}] * len(layers)}))
    packed = [blob("layer.v1.tar+gzip", compressed(layer)) for layer in layers]
    manifest = blob("manifest.v1+json", text({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                                              "config": config, "layers": packed}))
    manifest |= {"platform": {"os": "linux", "architecture": release.architecture},
                 "annotations": {"org.opencontainers.image.ref.name": release.version,
                                 "io.containerd.image.name": f"docker.io/library/zinc:{release.version}"}}
    blobs["index.json"] = text({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                                "manifests": [manifest]})
    blobs["oci-layout"] = text({"imageLayoutVersion": "1.0.0"})
    file_of = {"Config": f"blobs/sha256/{config['digest'][7:]}", "RepoTags": [f"zinc:{release.version}"],
               "Layers": [f"blobs/sha256/{layer['digest'][7:]}" for layer in packed]}
    blobs["manifest.json"] = text([file_of])
    for name, contents in sorted(blobs.items()):
        tar.file(name, contents)
    (out / f"zinc-{release.version}-oci-{release.processor}.tar").write_bytes(tar.finish())


def write_checksums(out):
    files = sorted(file for file in out.iterdir() if file.name != "SHA256SUMS")
    (out / "SHA256SUMS").write_text("".join(f"{sha256(file.read_bytes())}  {file.name}\n" for file in files))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, out = (pathlib.Path(path).resolve() for path in sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as stage:
        release = Release(build, pathlib.Path(stage))
        release.install()
        for write in [write_tarball, write_deb, write_wheel, write_image]:
            write(release, out)
    write_checksums(out)
    for file in sorted(out.iterdir()):
        print(f"{file.stat().st_size:>12,}  {file}")


if __name__ == "__main__":
    main()
