#!/usr/bin/env python3
"""Links zinc for any Linux with glibc 2.31 or later: nothing but glibc is a shared library.

    link_portable.py --compiler g++ --processor x86_64 --work FOLDER --output FOLDER/zinc OBJECTS_AND_ARCHIVES...

The objects are those of the ordinary build. What is different is the link (docs/adr/0020-portable-binary.md):
  glibc      Debian 11's, so that only symbols of glibc 2.31 and before can be used; cmake/portable/glibc_compat.cc has what
             GCC 12's own libraries expect of later ones
  libcurl    built here for HTTP and HTTPS only: Debian's static one needs libraries that have no static form
  {fmt}      compiled from its headers
  the rest   Debian's static libraries
Downloads are checked by SHA-256 and kept in FOLDER/downloads; a file placed there by hand is used if its checksum is right.
"""
import argparse
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEBIAN = os.environ.get("ZINC_DEBIAN_MIRROR", "http://deb.debian.org/debian")
CRATES = os.environ.get("ZINC_CRATES_MIRROR", "https://static.crates.io/crates")
GLIBC_VERSION = "2.31-13+deb11u11"
GLIBC_SHA256 = {
    "libc6 amd64": "05f7264da867b37f4c5ce49266b558ea1e81e05a9464f623152fca70f3550282",
    "libc6-dev amd64": "e7f7b45d9c5cfcf37609f0b6efd3c645272c812144703af89dfd32218fcb0fd3",
    "libc6 arm64": "baaa9aa184e2f21738c5819055e6740cc5b22f198e3f416e33f82b40ff6933d8",
    "libc6-dev arm64": "28d478134722dcd4b0bd2045a199301d18713bf95947b9fce66634e7aeacab2e",
}
CURL_CRATE = "curl-sys-0.4.91+curl-8.22.0"  # the Rust package carries curl's own source
CURL_SHA256 = "cd39579123e45bf762716bb893d43886ed1cabe6289455be29a4f1d4e37afb06"
CURL_OPTIONS = [
    "HTTP_ONLY=ON", "BUILD_CURL_EXE=OFF", "BUILD_SHARED_LIBS=OFF", "BUILD_STATIC_LIBS=ON", "BUILD_TESTING=OFF",
    "BUILD_EXAMPLES=OFF",
    "BUILD_LIBCURL_DOCS=OFF", "BUILD_MISC_DOCS=OFF", "ENABLE_CURL_MANUAL=OFF", "CURL_USE_OPENSSL=ON", "CURL_ZLIB=OFF",
    "CURL_BROTLI=OFF", "CURL_ZSTD=OFF", "USE_NGHTTP2=OFF", "USE_LIBIDN2=OFF", "CURL_USE_LIBPSL=OFF", "CURL_USE_LIBSSH2=OFF",
    "CURL_CA_BUNDLE=none", "CURL_CA_PATH=none",  # src/hub finds the system's certificates at run time
]
DEBIAN_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
STATIC_LIBRARIES = ["ssl", "crypto", "z", "edit", "tinfo", "bsd", "md"]  # a library comes before those it needs
ALLOWED_LIBRARIES = re.compile(r"lib(c|m|dl|rt|pthread)\.so\.\d|ld-linux-.*")
OLDEST_GLIBC = (2, 31)


def run(*command):
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words[:6])} ...: exit code {done.returncode}\n{done.stdout[-8000:]}")
    return done.stdout


def download(url, sha256, folder):
    """The file at `url`, from `folder` if it is there."""
    file = folder / url.rsplit("/", 1)[1]
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        with urllib.request.urlopen(url.replace("+", "%2B"), timeout=60) as reply:
            part.write_bytes(reply.read())
        part.rename(file)
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != sha256:
        sys.exit(f"{file}: SHA-256 is {found}, expected {sha256}; delete the file and try again")
    return file


def make_sysroot(work, processor):
    """Debian 11's glibc, below a folder. Absolute links in it would lead to this system's glibc: they are made relative."""
    architecture = DEBIAN_ARCHITECTURES[processor]
    sysroot = work / f"glibc-{GLIBC_VERSION}"
    if (sysroot / "complete").exists():
        return sysroot
    for package in ["libc6", "libc6-dev"]:
        url = f"{DEBIAN}/pool/main/g/glibc/{package}_{GLIBC_VERSION}_{architecture}.deb"
        run("dpkg-deb", "-x", download(url, GLIBC_SHA256[f"{package} {architecture}"], work / "downloads"), sysroot)
    for link in (path for path in sysroot.rglob("*") if path.is_symlink()):
        target = os.readlink(link)
        if target.startswith("/"):
            link.unlink()
            link.symlink_to(os.path.relpath(str(sysroot) + target, link.parent))
    (sysroot / "complete").touch()
    return sysroot


def make_libcurl(work, processor, compiler):
    library = work / CURL_CRATE / "build/lib/libcurl.a"
    if library.exists():
        return library
    crate = download(f"{CRATES}/curl-sys/{CURL_CRATE}.crate", CURL_SHA256, work / "downloads")
    with tarfile.open(crate) as archive:
        archive.extractall(work)
    build = work / CURL_CRATE / "build"
    options = [f"-D{option}" for option in CURL_OPTIONS]
    options += ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_FLAGS=-ffunction-sections",
                "-DCMAKE_DISABLE_FIND_PACKAGE_Perl=ON"]  # the package is without the documentation that Perl would build
    if processor == os.uname().machine:
        options.append(f"-DCMAKE_C_COMPILER={compiler.replace('g++', 'gcc').replace('c++', 'cc')}")
    else:
        options.append(f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/{processor}.cmake")
    run("cmake", "-G", "Ninja", "-S", work / CURL_CRATE / "curl", "-B", build, *options)
    run("cmake", "--build", build, "--target", "libcurl_static")
    return library


def compile_support(work, compiler):
    """The objects that only this program has."""
    objects = []
    for source in sorted((ROOT / "cmake/portable").glob("*.cc")):
        objects.append(work / f"{source.stem}.o")
        run(compiler, "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-c", source, "-o", objects[-1])
    return objects


def link(arguments, sysroot, libcurl, support):
    triplet = f"{arguments.processor}-linux-gnu"
    libraries = pathlib.Path("/usr/lib") / triplet
    run(arguments.compiler, f"--sysroot={sysroot}", f"-B{sysroot}/usr/lib/{triplet}", "-s", "-static-libgcc", "-static-libstdc++",
        "-Wl,--gc-sections,--exclude-libs,ALL,--build-id=sha1", "-o", arguments.output,
        "-Wl,--start-group", *arguments.inputs, "-Wl,--end-group", *support, libcurl,
        *(libraries / f"lib{name}.a" for name in STATIC_LIBRARIES), "-lpthread", "-ldl")


def check(program):
    """Fails if the program needs another shared library than glibc's or a newer glibc."""
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-d", program))
    foreign = [name for name in needed if not ALLOWED_LIBRARIES.fullmatch(name)]
    newer = {version for version in re.findall(r"GLIBC_([\d.]+)", run("readelf", "-V", program))
             if tuple(map(int, version.split("."))) > OLDEST_GLIBC}
    if foreign or newer or "libc.so.6" not in needed:
        sys.exit(f"{program} is not portable: needs {foreign} and glibc {sorted(newer)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--processor", required=True, choices=DEBIAN_ARCHITECTURES)
    parser.add_argument("--work", required=True, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--output", required=True)
    parser.add_argument("inputs", nargs="+")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    sysroot = make_sysroot(arguments.work, arguments.processor)
    libcurl = make_libcurl(arguments.work, arguments.processor, arguments.compiler)
    link(arguments, sysroot, libcurl, compile_support(arguments.work, arguments.compiler))
    check(arguments.output)


if __name__ == "__main__":
    main()
