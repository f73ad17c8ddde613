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

url="${ACCESS_URL}bin/coder-darwin-${ARCH}"
until curl -fsSL --compressed "$url" -o coder; do
	echo "The agent could not be fetched from $url; trying again in 30 seconds."
	sleep 30
done
chmod +x coder

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
