# Shared by the scripts of this folder; sourced, not run. Sets `root` and goes there.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
jobs=$(nproc 2>/dev/null || echo 2)

if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
say() { printf '%s\n' "$*"; }
heading() { printf '\n%s== %s ==%s\n' "$bold" "$*" "$plain"; }
die() {
    printf '%s\n' "$*" >&2
    exit 1
}

# need PACKAGE:SIGN...   installs the Debian packages whose sign is missing: a command, or a file when it has a slash.
# A sign that ends in * is a pattern. Without apt, or without the right to use it, it says what is needed and goes on.
need() {
    local missing=() item package sign
    for item in "$@"; do
        package=${item%%:*} sign=${item#*:}
        case $sign in
            */*) compgen -G "$sign" >/dev/null || missing+=("$package") ;;
            *) command -v "$sign" >/dev/null || missing+=("$package") ;;
        esac
    done
    if [ ${#missing[@]} = 0 ]; then
        say "everything that is needed is installed"
        return 0
    fi
    local as_root=()
    if ! command -v apt-get >/dev/null; then
        say "no apt on this system. Needed, by their Debian names: ${missing[*]}"
        say "going on with what is there"
        return 0
    fi
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null; then
            say "neither root nor sudo. Needed: apt-get install ${missing[*]}"
            say "going on with what is there"
            return 0
        fi
        as_root=(sudo)
    fi
    say "about to install with apt: ${missing[*]}"
    "${as_root[@]}" apt-get update -q || say "apt-get update failed; trying with the lists that are there"
    if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        "${missing[@]}" </dev/null; then
        say "apt could not install ${missing[*]}; going on with what is there"
    fi
}

# What building needs at all, and what the main job reads.
build_packages=(g++:c++ cmake:cmake ninja-build:ninja libboost-dev:/usr/include/boost/version.hpp
    doctest-dev:/usr/include/doctest/doctest.h libeigen3-dev:/usr/include/eigen3/Eigen/Core
    zlib1g-dev:/usr/include/zlib.h
    dataset-fashion-mnist:/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz)
# What the checks use beside that; each is left out with a word where it is not to be had.
check_packages=(python3:python3 clang:clang++ "libclang-rt-14-dev:/usr/lib/llvm-14/lib/clang/*/lib/linux/*asan*" spin:spin
    relacy-dev:/usr/include/relacy/relacy.hpp)

# The presets ask for CMake 3.25 and Ninja.
need_tools() {
    local tool
    for tool in cmake ninja; do
        command -v "$tool" >/dev/null || die "$tool is not there: install it and run this again"
    done
    local version
    version=$(cmake --version | sed -n 's/^cmake version \([0-9]*\.[0-9]*\).*/\1/p')
    if [ "$(printf '%s\n3.25\n' "$version" | sort -V | head -n1)" != 3.25 ]; then
        die "CMake $version is too old for the presets: 3.25 or newer is needed"
    fi
}

# forget_moved FOLDER: a build folder that was made when the checkout lay elsewhere cannot be used.
forget_moved() {
    local home
    home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$1/CMakeCache.txt" 2>/dev/null) || true
    if [ -n "$home" ] && [ "$home" != "$root" ]; then
        say "$1 was made for $home: starting it anew"
        rm -rf "${root:?}/$1"
    fi
}
