#!/usr/bin/env bash
# Makes sure that what the named purposes need is there:  tools/install_deps.sh build [web] [run] [test] [maintainer] [deb]
#   [dist] [bare-system] [check] [fuzz] [bench]
# Looks first, without the package manager; installs only what is missing, asking for root only then.
# Debian 12 or later and Ubuntu 24.04 or later have everything; elsewhere it says what is needed.
set -euo pipefail

min_cmake=3.25
min_boost=1.75
min_gxx=12

stop() {
  printf 'zinc: %s\n' "$*" >&2
  exit 1
}

has_command() { command -v "$1" >/dev/null 2>&1; }

has_header() { [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ]; }

at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; } # at_least FOUND WANTED

boost_version() { # "1.81" of the headers that are there; nothing if there are none
  local header
  for header in /usr/local/include/boost/version.hpp /usr/include/boost/version.hpp; do
    if [ -e "$header" ]; then
      sed -n 's/^#define BOOST_LIB_VERSION "\([0-9]*\)_\([0-9]*\).*/\1.\2/p' "$header"
      return
    fi
  done
}

has_boost() {
  local version
  version=$(boost_version)
  [ -n "$version" ] && at_least "$version" $min_boost
}

has_curl() { # Debian keeps the header in a folder of the machine's kind
  has_header curl/curl.h || [ -e "/usr/include/$(uname -m)-linux-gnu/curl/curl.h" ]
}

has_boost_context() { # compiled, unlike the rest of Boost we use
  compgen -G '/usr/lib/*/libboost_context.so' >/dev/null || [ -e /usr/local/lib/libboost_context.so ]
}

has_browser() { [ -n "$("$(dirname "$0")/find_browser.sh")" ]; }

has_vulkan_layers() { compgen -G '/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json' >/dev/null; }
has_llvmpipe() { compgen -G '/usr/share/vulkan/icd.d/lvp_icd*.json' >/dev/null; } # Vulkan on the CPU

has_module() { # finding it is quick, importing it is not
  has_command python3 && python3 -c 'import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)' "$1"
}

has_fuzzer() {
  local clang
  clang=$("$(dirname "$0")/find_clang.sh")
  [ -n "$clang" ] && [ -e "$("$clang" -print-file-name="libclang_rt.fuzzer-$(uname -m).a")" ]
}

# What is missing for one purpose: a package name per line, or @boost, @browser, @clang where the name depends on the release.
missing_for() {
  case $1 in
    build)
      has_command "${CXX:-g++}" || echo g++
      has_command cmake || echo cmake
      has_command ninja || echo ninja-build
      has_header fmt/core.h || echo libfmt-dev
      has_header CLI/CLI.hpp || echo libcli11-dev
      has_header gtest/gtest.h || echo libgtest-dev
      has_header zlib.h || echo zlib1g-dev
      has_curl || echo libcurl4-openssl-dev
      has_header openssl/ssl.h || echo libssl-dev
      has_header histedit.h || echo libedit-dev
      has_header vulkan/vulkan.hpp || echo libvulkan-dev
      has_boost || echo @boost
      has_boost_context || echo @boost-context
      ;;
    web) # the chat page
      has_command node || echo nodejs
      has_command npm || echo npm
      ;;
    run)
      has_module pip || echo python3-pip
      ;;
    test)
      has_command python3 || echo python3
      has_module pip || echo python3-pip
      has_module ensurepip || echo python3-venv
      has_command curl || echo curl
      has_command ccache || echo ccache
      has_browser || echo @browser
      has_llvmpipe || echo mesa-vulkan-drivers
      has_vulkan_layers || echo vulkan-validationlayers
      has_command tmux || echo tmux
      has_command zsh || echo zsh
      has_command fish || echo fish
      has_command man || echo man-db
      has_module jsonschema || echo python3-jsonschema
      missing_for deb
      ;;
    maintainer) # proves that the Vulkan kernels are what their sources give, that releases run in bare systems, replicas, split hosts
      has_command cargo || echo cargo
      has_command curl || echo curl
      has_command mpirun || echo openmpi-bin
      has_command haproxy || [ -x /usr/sbin/haproxy ] || echo haproxy
      missing_for dist
      missing_for bare-system
      ;;
    bare-system)
      has_command mmdebstrap || echo mmdebstrap
      has_command buildah || echo buildah
      has_command openssl || echo openssl
      has_llvmpipe || echo mesa-vulkan-drivers
      ;;
    dist) # static libraries come with their headers
      has_command python3 || echo python3
      has_command dpkg-deb || echo dpkg
      [ -d /usr/share/ca-certificates/mozilla ] || echo ca-certificates
      ;;
    deb)
      has_command dpkg-shlibdeps || echo dpkg-dev
      has_command file || echo file
      ;;
    check)
      has_command clang-format || echo clang-format
      has_command git || echo git
      has_command python3 || echo python3
      ;;
    fuzz) has_fuzzer || echo @clang ;;
    bench) has_header benchmark/benchmark.h || echo libbenchmark-dev ;;
    *) stop "install_deps.sh: unknown purpose '$1'" ;;
  esac
}

candidate() { # version of a package the package manager would install; nothing if it knows none
  apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9:]*:\)\{0,1\}\([0-9].*\)/\2/p'
}

boost_package() {
  local version name
  version=$(candidate libboost-dev)
  if [ -n "$version" ] && at_least "$version" $min_boost; then echo libboost-dev; return; fi
  name=$(apt-cache pkgnames libboost1. | grep -E '^libboost1\.[0-9]+-dev$' | sort -V | tail -n 1 || true)
  version=${name#libboost}
  version=${version%-dev}
  if [ -n "$version" ] && at_least "$version" $min_boost; then echo "$name"; return; fi
  stop "needs the Boost headers, version $min_boost or newer; this system offers ${version:-none}." \
    "Debian 12 and Ubuntu 24.04 have them; or put newer headers into /usr/local/include."
}

browser_package() { # the shell has no windows to draw: half the processor time
  if [ -n "$(candidate chromium-headless-shell)" ]; then echo chromium-headless-shell; else echo chromium; fi
}

clang_packages() {
  local version
  version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
  echo clang
  if [ -n "$version" ] && [ -n "$(candidate "libclang-rt-$version-dev")" ]; then echo "libclang-rt-$version-dev"; fi
}

install() {
  local packages=() name as_root=() names=${*//@/}
  has_command apt-get || stop "missing: $names. Install these, or what your system calls them (boost: the headers of" \
    "$min_boost or newer; clang: 14 or newer with its fuzzer runtime), and try again."
  if [ "$(id -u)" != 0 ]; then
    has_command sudo || stop "missing: $names. Installing them needs root and there is no sudo; as root run: $0 ${purposes[*]}"
    as_root=(sudo)
  fi
  echo "zinc: installing what is missing: $names" >&2
  # sudo drops the environment, so env sets what apt needs behind it. A list that cannot be refreshed may still do.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update >&2 || true
  for name in "$@"; do
    case $name in
      @boost)
        name=$(boost_package)
        packages+=("$name")
        ;;
      @boost-context) # of the release the headers are or will be of
        name=$(boost_package)
        packages+=("${name/libboost/libboost-context}")
        ;;
      @browser) packages+=("$(browser_package)") ;;
      @clang) mapfile -t -O "${#packages[@]}" packages < <(clang_packages) ;;
      cmake)
        at_least "$(candidate cmake)" $min_cmake || too_old_cmake "$(candidate cmake)"
        packages+=(cmake)
        ;;
      *) packages+=("$name") ;;
    esac
  done
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends --no-remove "${packages[@]}" >&2 ||
    stop "could not install ${packages[*]} (the package manager's words are above)"
}

too_old_cmake() {
  stop "needs CMake $min_cmake or newer; this system has ${1:-none}. Debian 12 and Ubuntu 24.04 have it;" \
    "or put a newer cmake first on PATH."
}

check_versions() {
  local version
  version=$(cmake --version | sed -n 's/^cmake version //p')
  at_least "$version" $min_cmake || too_old_cmake "$version"
  if [ -z "${CXX:-}" ]; then
    version=$(g++ -dumpversion)
    at_least "$version" $min_gxx ||
      stop "needs g++ $min_gxx or clang 14 or newer; g++ here is $version. Name another compiler: CXX=clang++ make"
  fi
}

purposes=("$@")
found=$(for purpose in "$@"; do missing_for "$purpose"; done)
mapfile -t missing < <(printf '%s' "$found" | sort -u)
if [ "${#missing[@]}" -gt 0 ]; then install "${missing[@]}"; fi
case " $* " in *" build "*) check_versions ;; esac
