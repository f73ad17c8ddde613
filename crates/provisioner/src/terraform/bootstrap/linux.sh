#!/usr/bin/env sh
# Fetches the agent from the deployment and runs it.
set -eux

# A workspace that ends at once takes its logs along; wait so that somebody can read them.
hold_on_failure() {
	code=$?
	if [ "$code" -ne 0 ]; then
		set +x
		echo "The agent could not be started (exit code $code). Waiting 24 hours before giving up, so that this log can be read."
		sleep 86400
	fi
}
trap hold_on_failure EXIT

dir="${BINARY_DIR:-}"
if [ -z "$dir" ]; then
	dir=$(mktemp -d -t coder.XXXXXX)
fi
mkdir -p "$dir"
cd "$dir"

url="${ACCESS_URL}bin/coder-linux-${ARCH}"
download() {
	if command -v curl >/dev/null 2>&1; then
		curl -fsSL --compressed "$url" -o coder
	elif command -v wget >/dev/null 2>&1; then
		wget -q "$url" -O coder
	elif command -v busybox >/dev/null 2>&1; then
		busybox wget -q "$url" -O coder
	else
		echo "Neither curl, wget nor busybox is installed; one of them is needed to fetch the agent."
		exit 127
	fi
}
until download; do
	echo "The agent could not be fetched from $url; trying again in 30 seconds."
	sleep 30
done
chmod +x coder

if [ -n "${USE_CAP_NET_ADMIN:-}" ]; then
	if [ "$(id -u)" -eq 0 ]; then
		echo "Running as root, which has CAP_NET_ADMIN already."
	elif command -v sudo >/dev/null 2>&1 && command -v setcap >/dev/null 2>&1; then
		sudo -n setcap CAP_NET_ADMIN=+ep coder || echo "CAP_NET_ADMIN could not be set; going on without it."
	else
		echo "CAP_NET_ADMIN needs sudo and setcap; going on without it."
	fi
fi

export CODER_AGENT_AUTH="${AUTH_TYPE}"
export CODER_AGENT_URL="${ACCESS_URL}"

case "$(./coder --version | head -n1)" in
*Coder*) ;;
*)
	echo "What was fetched from $url is not the agent."
	exit 2
	;;
esac
exec ./coder agent
