#!/bin/sh
# Downloads the coder binary of this server.
set -eu

url=@URL@
product=@PRODUCT@
compatible=@COMPATIBLE@

usage() {
	cat <<END
Installs the coder binary of $url.

Usage: install.sh [options], or: curl -fsSL $url/install.sh | sh -s -- [options]

  --prefix DIR        install DIR/bin/coder; without it (or PREFIX in the environment) DIR is
                      /usr/local when that can be written to, and ~/.local otherwise
  --binary-name NAME  call the program NAME instead of coder
  --version VERSION   fail unless this server has this version ($product, or $compatible)
  --stable, --mainline, --method standalone
                      accepted; there is one version, and one way
  --dry-run           say what would be done, and do nothing
  -h, --help          show this
END
}

fail() {
	status=$1
	shift
	echo "install.sh: $*" >&2
	exit "$status"
}

misused() {
	fail 2 "$*; see --help"
}

prefix=${PREFIX:-}
name=coder
wanted=
dry=
while [ $# -gt 0 ]; do
	flag=$1
	shift
	case "$flag" in
	-h | --help)
		usage
		exit 0
		;;
	--dry-run)
		dry=1
		continue
		;;
	--stable | --mainline) continue ;;
	--with-terraform)
		misused "--with-terraform: this server has no Terraform; a daemon downloads what its templates need, or install it from your distribution"
		;;
	--net-admin)
		misused "--net-admin: this program needs no CAP_NET_ADMIN"
		;;
	--rsh | --rsh=* | *@*)
		misused "$flag: this script installs on this machine only; run it on the other one"
		;;
	--prefix=* | --binary-name=* | --version=* | --method=*)
		value=${flag#*=}
		flag=${flag%%=*}
		;;
	--prefix | --binary-name | --version | --method)
		[ $# -gt 0 ] || misused "$flag needs a value"
		value=$1
		shift
		;;
	*) misused "unknown argument $flag" ;;
	esac
	[ -n "$value" ] || misused "$flag needs a value"
	case "$flag" in
	--prefix) prefix=$value ;;
	--version) wanted=${value#v} ;;
	--binary-name)
		case "$value" in
		*/*) misused "--binary-name takes a name without slashes, not $value" ;;
		esac
		name=$value
		;;
	--method)
		case "$value" in
		detect | standalone) ;;
		*) misused "unknown method $value: this server has a plain binary only (standalone)" ;;
		esac
		;;
	esac
done

if [ -n "$wanted" ]; then
	plain=${compatible#v}
	case "$wanted" in
	"${product#v}" | "$plain" | "${plain%%+*}") ;;
	*) fail 1 "this server has version $product, compatible with $compatible, and no $wanted" ;;
	esac
fi

case "$(uname -s)" in
Linux) os=linux ;;
Darwin) os=darwin ;;
*) fail 1 "there is no binary for $(uname -s)" ;;
esac
case "$(uname -m)" in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) fail 1 "there is no binary for $(uname -m)" ;;
esac

if [ -n "$prefix" ]; then
	bin="$prefix/bin"
elif [ -w /usr/local/bin ]; then
	bin=/usr/local/bin
else
	bin="$HOME/.local/bin"
fi
# The whole program. For other platforms than the server's there is only the slim build, for command lines and workspaces.
full="$url/bin/coder-full-$os-$arch"
slim="$url/bin/coder-$os-$arch"
if [ -n "$dry" ]; then
	echo "would download $full and install it as $bin/$name" >&2
	exit 0
fi
mkdir -p "$bin" || fail 1 "choose another directory with --prefix"

new="$bin/.$name.$$"
trap 'rm -f "$new"' EXIT
# Fails where the server has no such file. wget does not tell that apart from other errors.
fetch() {
	status=0
	if command -v curl >/dev/null 2>&1; then
		errors=$(curl -fsSL -o "$new" "$1" 2>&1) || status=$?
		[ "$status" -eq 0 ] || [ "$status" -eq 22 ] || fail 1 "cannot download $1: $errors"
	else
		errors=$(wget -q -O "$new" "$1" 2>&1) || status=$?
	fi
	return "$status"
}
is_slim=
if ! fetch "$full"; then
	fetch "$slim" || fail 1 "cannot download $slim: $errors
A server has only the programs that lie beside its own; an administrator adds coder-$os-$arch there."
	is_slim=1
fi
chmod 0755 "$new"
mv -f "$new" "$bin/$name"

echo "coder is installed as $bin/$name" >&2
[ -z "$is_slim" ] || echo "it is the slim build: it has no server and no provisioner daemon" >&2
case ":$PATH:" in
*":$bin:"*) ;;
*) echo "add $bin to your PATH to use it" >&2 ;;
esac
echo "next: $bin/$name login $url" >&2
