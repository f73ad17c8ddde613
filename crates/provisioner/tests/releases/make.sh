#!/bin/sh
# Makes the releases in this directory anew: keys that are thrown away at the end, two small programs, lists and signatures.
# The tests take what is here as it is; run this only to change it. It needs gpg, zip and sha256sum.
set -eu
cd "$(dirname "$0")"
GNUPGHOME="$(mktemp -d)"; export GNUPGHOME
trap 'rm -rf "$GNUPGHOME"' EXIT
gpg="gpg --batch --quiet --yes --pinentry-mode loopback --passphrase= --faked-system-time"
then=20240101T000000 now=20240601T000000 late=20290101T000000
id() { gpg --list-keys --with-colons "$1" | awk -F: -v kind="$2" '$1 == kind { getline; print $10 }'; }
# A primary key, a subkey that signs until 2026, and one that was revoked.
$gpg $then --quick-generate-key "Test <releases@example.com>" rsa2048 sign never
primary="$(id releases@example.com pub)"
$gpg $then --quick-add-key "$primary" rsa2048 sign 2y
$gpg $then --quick-add-key "$primary" rsa2048 sign never
$gpg $then --quick-add-key "$primary" rsa2048 encr never
signing="$(id "$primary" sub | sed -n 1p)" revoked="$(id "$primary" sub | sed -n 2p)"
$gpg $then --quick-generate-key "Stranger <stranger@example.com>" rsa2048 sign never
for version in 1.5.7 1.9.8 1.10.0; do
  mkdir -p "terraform/$version"
  ( cd "terraform/$version"
    rm -f ./*
    # It knows its version; for all else it is the Terraform of the machine, which must not judge the version.
    printf '#!/bin/sh\ncase "$1" in version) echo "{\\"terraform_version\\":\\"%s\\"}";; *) sed -i /required_version/d ./*.tf; exec terraform "$@";; esac\n' "$version" > terraform
    chmod 755 terraform
    touch -d 2024-01-01T00:00:00Z terraform
    for platform in linux_amd64 linux_arm64; do zip -qX "terraform_${version}_$platform.zip" terraform; done
    rm terraform
    sha256sum ./*.zip | sed 's|\./||' > "terraform_${version}_SHA256SUMS"
    $gpg $now --local-user "$signing!" --detach-sign --output "terraform_${version}_SHA256SUMS.sig" "terraform_${version}_SHA256SUMS" )
done
build() { printf '{"name":"terraform","version":"%s","os":"linux","arch":"%s"}' "$1" "$2"; }
entry() { printf '"%s": {"name": "terraform", "version": "%s", "builds": [%s, %s]}' "$1" "$1" "$(build "$1" amd64)" "$(build "$1" arm64)"; }
# One release more than there are files of.
printf '{"name": "terraform", "versions": {\n%s,\n%s,\n%s,\n%s\n}}\n' "$(entry 1.5.7)" "$(entry 1.9.8)" "$(entry 1.10.0)" "$(entry 1.2.9)" > terraform/index.json
list=terraform/1.9.8/terraform_1.9.8_SHA256SUMS
mkdir -p signatures
sign() { name="$1"; shift; $gpg "$@" --detach-sign --output "signatures/$name" "$list"; }
sign armoured.asc $now --armor --local-user "$signing!"
sign by-primary.sig $now --local-user "$primary!"
sign by-revoked.sig $now --local-user "$revoked!"
sign by-stranger.sig $now --local-user stranger@example.com
sign with-sha1.sig $now --digest-algo SHA1 --local-user "$primary!"
sign text-mode.sig $now --textmode --local-user "$primary!"
# Signed by the key that has run out, which needs a clock that is wrong in the other direction.
$gpg $then --quick-set-expire "$primary" 10y "$signing"
sign too-late.sig $late --local-user "$signing!"
$gpg 20240102T000000 --quick-set-expire "$primary" 2y "$signing"
printf 'key %s\nrevkey\ny\n0\n\ny\nsave\n' "$revoked" | $gpg 20240103T000000 --command-fd 0 --edit-key "$primary"
gpg --batch --armor --export "$primary" > test-key.asc
gpg --list-keys --with-subkey-fingerprint
