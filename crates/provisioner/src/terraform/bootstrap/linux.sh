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
	# A read-only root may have a writable directory elsewhere, and temporary directories are often mounted with noexec.
	for base in "${TMPDIR:-/tmp}" /dev/shm "${HOME:-/}" .; do
		dir=$(mktemp -d "$base/coder.XXXXXX" 2>/dev/null) || {
			dir=
			continue
		}
		if printf '#!/bin/sh\n' >"$dir/coder" && chmod +x "$dir/coder" && "$dir/coder" 2>/dev/null; then
			break
		fi
		rm -rf "$dir"
		dir=
	done
fi
if [ -z "$dir" ]; then
	echo "No directory can be written to and run programs: mount a writable /tmp without noexec, or set BINARY_DIR."
	exit 1
fi
mkdir -p "$dir"
cd "$dir"

base="${ACCESS_URL}"
url="${base}bin/coder-linux-${ARCH}"

# Shows a problem here, and in the workspace's log if the server can be reached. The token must appear neither in this log nor in a list
# of processes.
report() {
	{ set +x; } 2>/dev/null
	echo "$1"
	if [ -n "${CODER_AGENT_TOKEN:-}" ]; then
		text=$(printf '%s' "$1" | tr -d '"\\' | tr '\n\t\r' '   ')
		body="{\"logs\":[{\"created_at\":\"1970-01-01T00:00:00Z\",\"level\":\"error\",\"output\":\"$text\"}]}"
		logs="${base}api/v2/workspaceagents/me/logs"
		if command -v curl >/dev/null 2>&1; then
			printf 'header = "Coder-Session-Token: %s"\n' "$CODER_AGENT_TOKEN" |
				curl -fsS -m 10 -K - -X PATCH -H 'Content-Type: application/json' -d "$body" "$logs" >/dev/null 2>&1 || true
		elif command -v wget >/dev/null 2>&1; then
			(
				umask 077
				printf 'header = Coder-Session-Token: %s\n' "$CODER_AGENT_TOKEN" >wgetrc
			)
			# The wget of busybox does not know these options; the problem is then shown here only.
			wget -q -T 10 -t 1 -O /dev/null --config=wgetrc --method=PATCH --header='Content-Type: application/json' \
				--body-data="$body" "$logs" 2>/dev/null || true
			rm -f wgetrc
		fi
	fi
	set -x
}

download() {
	if command -v curl >/dev/null 2>&1; then
		curl -fsSL --compressed "$url" -o coder.new
	elif command -v wget >/dev/null 2>&1; then
		wget -q "$url" -O coder.new
	elif command -v busybox >/dev/null 2>&1; then
		busybox wget -q "$url" -O coder.new
	else
		echo "Neither curl, wget nor busybox is installed: install one of them in the workspace's image, so that the agent can be fetched."
		exit 127
	fi
}

# Whether what was fetched runs here and is the agent.
check() {
	chmod +x coder.new && mv -f coder.new coder || return 1
	case "$(./coder --version 2>&1 | head -n1)" in
	*Coder*) return 0 ;;
	*) return 2 ;;
	esac
}

while true; do
	if ! download; then
		report "The agent could not be fetched from $url; trying again in 30 seconds."
	elif ! check; then
		report "What was fetched from $url does not run in $dir as the agent: $(./coder --version 2>&1 | head -n1 | cut -c1-200). If that directory is mounted with noexec, set BINARY_DIR to another one. Trying again in 30 seconds."
	else
		break
	fi
	sleep 30
done

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

exec ./coder agent
