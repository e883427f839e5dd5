#!/bin/sh
# Launcher of the image cove-test/execd, after lifecycle.md §4.3: enough for tests of an image that an operator configures.
set -e
case "$(printf %s "${OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT:-}" | tr 'A-Z' 'a-z')" in
1 | true | yes | on)
  n=0
  while [ ! -s /opt/opensandbox/mitmproxy-ca-cert.pem ] && [ $n -lt 300 ]; do sleep 1; n=$((n + 1)); done
  export NODE_EXTRA_CA_CERTS=/opt/opensandbox/mitmproxy-ca-cert.pem REQUESTS_CA_BUNDLE=/opt/opensandbox/mitmproxy-ca-cert.pem
  export SSL_CERT_FILE=/opt/opensandbox/mitmproxy-ca-cert.pem
  ;;
esac
EXECD=${EXECD:-/opt/opensandbox/execd}
EXECD_ENVS=${EXECD_ENVS:-/opt/opensandbox/.env}
export EXECD_ENVS
mkdir -p "$(dirname "$EXECD_ENVS")" && touch "$EXECD_ENVS"
if [ -n "${EXECD_BOOTSTRAP_PRE_SCRIPT:-}" ] && [ -r "$EXECD_BOOTSTRAP_PRE_SCRIPT" ]; then . "$EXECD_BOOTSTRAP_PRE_SCRIPT"; fi
case "$(printf %s "${EXECD_INIT:-}" | tr 'A-Z' 'a-z')" in 1 | true | yes | on) exec "$EXECD" --init -- "$@" ;; esac
"$EXECD" &
execd=$!
if [ -n "${BOOTSTRAP_CMD:-}" ]; then set -- "${BOOTSTRAP_SHELL:-sh}" -c "$BOOTSTRAP_CMD"; fi
[ $# -gt 0 ] || set -- sh
"$@" &
child=$!
trap 'kill -TERM $child $execd 2>/dev/null; wait $child $execd 2>/dev/null; exit 0' TERM INT
set +e
wait $child
code=$?
kill -TERM $execd 2>/dev/null
wait $execd 2>/dev/null
exit $code
