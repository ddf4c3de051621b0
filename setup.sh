#!/usr/bin/env bash
# Make venv/, install this checkout into it, then run a verb. Only `test` writes outside of the checkout: the servers that it builds.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" >/dev/null && pwd -P)
tensorflow=${TENSORFLOW:-}
venv=$root/venv${tensorflow:+-tf$tensorflow}
meanwhile=() begun=""    # a module and its arguments to run while packages are installed, and the id of its process
stamp=$venv/.setup-stamp # three lines: the path of the checkout, the fingerprint of the installation, the extras
oldest=11 newest=13      # Python 3.x: TensorFlow has wheels for these

usage() {
    cat <<'TEXT'
usage: ./setup.sh [VERB]

  (no verb)          make venv/ and install the package into it, editable
  demo [ARGUMENT…]   that, then run examples/imagenet_in_memory.py with the arguments
  with EXTRA…        that with optional packages, such as: with cloud tfds (README.md lists the extras)
  test [ARGUMENT…]   that with the tests' packages, build the servers for the tests (once, kept in
                     ~/.cache/ais_tar2tf), then run pytest with the arguments
  dev                that with the linters
  docs               that with pdoc, then write a reference of all public names into build/docs/
  --help             this text

Set PYTHON to choose the Python (3.11 to 3.13). uv installs when it is on PATH, pip otherwise.
Set TENSORFLOW to a version such as 2.19 for an environment of its own with it, venv-tf2.19/.
TEXT
}

say() { printf 'setup: %s\n' "$*" >&2; }

fail() {
    say "$@"
    exit 1
}

misused() {
    say "$1"
    usage >&2
    exit 2
}

have_uv() { uv --version >/dev/null 2>&1; }

version_of() { "$1" -c 'import sys; print(".".join(map(str, sys.version_info[:3])))' 2>/dev/null; }

why_not_version() {
    local minor=${1#3.}
    minor=${minor%%.*}
    if [[ $1 != 3.* ]] || ((minor < oldest || minor > newest)); then echo "it is Python $1"; fi
}

# Print why a Python cannot be used, or nothing when it can. A pyenv shim can exist and still not run.
why_not() {
    local version reason
    version=$(version_of "$1") || { echo "it does not run" && return; }
    reason=$(why_not_version "$version")
    if [[ -z $reason ]] && ! have_uv && ! "$1" -c 'import ensurepip, venv' 2>/dev/null; then
        reason="it lacks the module venv or ensurepip (on Debian and Ubuntu: apt install python${version%.*}-venv)"
    fi
    echo "$reason"
}

# Set `python` to the first usable Python, and to the real program instead of a shim or the one inside a venv.
find_python() {
    local candidates=(python3.13 python3.12 python3.11 python3) candidate reason tried=""
    if [[ -n ${PYTHON:-} ]]; then candidates=("$PYTHON"); fi
    for candidate in "${candidates[@]}"; do
        command -v -- "$candidate" >/dev/null || { tried+=$'\n'"  $candidate: not found" && continue; }
        reason=$(why_not "$candidate")
        if [[ -z $reason ]]; then
            python=$("$candidate" -c 'import sys; print(sys._base_executable)')
            return
        fi
        tried+=$'\n'"  $candidate: $reason"
    done
    fail "no Python 3.$oldest to 3.$newest that can be used:$tried"$'\n'"Install one, or name it: PYTHON=/path/to/python3.$newest ./setup.sh"
}

read_stamp() {
    made_at="" installed="" extras=""
    if [[ -f $stamp ]]; then
        { read -r made_at && read -r installed && read -r extras; } <"$stamp" || true
    fi
}

write_stamp() { printf '%s\n' "$root" "$1" "$extras" >"$stamp"; }

# Print all that an installation depends on, except the path: a moved venv is always made anew.
fingerprint() {
    local sources
    sources=$(cat "$root/pyproject.toml" "$root"/ais_tar2tf/native/*.[ch] 2>/dev/null | cksum) || true
    echo "$sources python $(version_of "$venv/bin/python") tensorflow=${tensorflow:-any} native=${AIS_TAR2TF_NATIVE:-auto}"
}

usable() {
    local version
    version=$(version_of "$venv/bin/python") || return 1
    [[ -z $made_at || $made_at == "$root" ]] || return 1
    [[ -z ${PYTHON:-} || $version == "$(version_of "$python")" ]] || return 1
    [[ -z $(why_not_version "$version") ]]
}

# uv makes venvs without pip.
can_install() { have_uv || "$venv/bin/python" -m pip --version >/dev/null 2>&1; }

make_venv() {
    if [[ -z ${python:-} ]]; then find_python; fi
    if [[ -e $venv && ! -e $venv/pyvenv.cfg && -n $(ls -A -- "$venv") ]]; then
        fail "$venv exists and is no virtual environment: move it away"
    fi
    say "making ${venv##*/}/ with $python ($(version_of "$python"))"
    rm -rf -- "$venv"
    if have_uv; then
        uv venv --quiet --python "$python" "$venv"
    else
        "$python" -m venv "$venv"
    fi || fail "that failed: see above, then run ./setup.sh again"
}

install() {
    local remark="" what=.${extras:+"[${extras// /,}]"} packages
    packages=(-e "$what")
    if [[ -n $tensorflow ]]; then packages+=("tensorflow==$tensorflow.*"); fi
    # TFDS needs tensorflow-metadata. From 1.21 on, it needs protobuf 6 without declaring it, and 2.19 has protobuf 5.
    if [[ $tensorflow == 2.19 ]]; then packages+=("tensorflow-metadata<1.21"); fi
    if [[ -z $installed ]]; then remark=" (TensorFlow is large: the first time takes a minute or more)"; fi
    say "installing ${what/#./ais_tar2tf}$remark"
    write_stamp incomplete # so the next run repairs an interrupted installation
    if ((${#meanwhile[@]} > 0)); then begin "${meanwhile[@]}"; fi
    if have_uv; then
        (cd -- "$root" && uv pip install --quiet --python "$venv/bin/python" "${packages[@]}")
    else
        (cd -- "$root" && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${packages[@]}")
    fi || fail "that failed: see above, then run ./setup.sh again"
    write_stamp "$(fingerprint)"
    if [[ -n $begun ]]; then wait "$begun" || true; fi # a failed build is repeated, and reported, when a test needs it
}

# Run a module of this checkout in the background. It ends with this script.
begin() {
    (cd -- "$root" && exec "$venv/bin/python" -S tests/servers/child.py $$ "$venv/bin/python" -m "$@") &
    begun=$!
}

# Install the package with the named extras into venv/, together with the extras that are already there.
ensure() {
    local before extra
    read_stamp
    before=$extras
    for extra in "$@"; do
        if [[ " $extras " != *" $extra "* ]]; then extras=${extras:+$extras }$extra; fi
    done
    if [[ -n ${PYTHON:-} ]]; then find_python; fi
    if usable && [[ $extras == "$before" && $installed == "$(fingerprint)" ]]; then return; fi
    if ! usable || ! can_install; then
        make_venv
        installed=""
    fi
    install
}

# Print the extras of pyproject.toml in one line.
known_extras() {
    sed -n '/^\[project.optional-dependencies\]/,/^\[tool/s/^\([a-z0-9]*\) = \[.*/\1/p' "$root/pyproject.toml" | tr '\n' ' '
}

check_extras() {
    local extra known
    known=$(known_extras)
    if (($# == 0)); then misused "with needs the name of an extra: $known"; fi
    for extra in "$@"; do
        if [[ " $known" != *" $extra "* ]]; then misused "there is no extra named $extra, but: $known"; fi
    done
}

# Print the path of the activation script, relative to the current folder if that is the checkout.
activation() {
    if [[ $PWD -ef $root ]]; then echo "${venv##*/}/bin/activate"; else printf '%q' "$venv/bin/activate"; fi
}

main() {
    local verb=${1:-}
    if (($# > 0)); then shift; fi
    if [[ -n $tensorflow && ! $tensorflow =~ ^[0-9]+\.[0-9]+$ ]]; then misused "TENSORFLOW is a version such as 2.19, not $tensorflow"; fi
    case $verb in
    "")
        ensure
        say "ready: source $(activation)"
        ;;
    dev)
        if (($# > 0)); then misused "$verb takes no arguments"; fi
        ensure "$verb"
        say "ready: source $(activation)"
        ;;
    docs)
        if (($# > 0)); then misused "$verb takes no arguments"; fi
        ensure docs
        cd -- "$root"
        TF_CPP_MIN_LOG_LEVEL=2 exec "$venv/bin/python" -m tests.support.reference build/docs
        ;;
    with)
        check_extras "$@"
        ensure "$@"
        say "ready: source $(activation)"
        ;;
    demo)
        ensure
        export TF_CPP_MIN_LOG_LEVEL=2 # without TensorFlow's remarks about the CPU
        "$venv/bin/python" "$root/examples/imagenet_in_memory.py" "$@"
        say "go on: source $(activation), then ais-tar2tf demo"
        ;;
    test)
        meanwhile=(tests.servers.build "$@")
        ensure test
        cd -- "$root"
        exec "$venv/bin/python" -m tests.servers.enter "$venv/bin/python" -m pytest -n auto --dist worksteal "$@"
        ;;
    -h | --help | help) usage ;;
    *) misused "unknown verb: $verb" ;;
    esac
}

main "$@"
