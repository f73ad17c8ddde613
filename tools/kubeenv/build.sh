#!/bin/sh
# Builds kube-apiserver and kube-controller-manager into the directory DIR/VERSION, unless they are there, and prints it.
# usage: build.sh DIR
set -eu
cd "$(dirname "$0")"
version=$(sed -n "s|^.*k8s.io/kubernetes v\([0-9.]*\).*|\1|p" go.mod | head -n 1)
out=$1/$version
mkdir -p "$out"
minor=${version#*.}
at=k8s.io/component-base/version
flags="-s -w -X $at.gitVersion=v$version -X $at.gitMajor=${version%%.*} -X $at.gitMinor=${minor%%.*} -X $at.gitTreeState=clean"
for program in kube-apiserver kube-controller-manager; do
    if [ ! -x "$out/$program" ]; then
        # The name of a program that is not complete must not be that of a complete one.
        CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -trimpath -ldflags "$flags" -o "$out/$program.part" "k8s.io/kubernetes/cmd/$program" >&2
        mv "$out/$program.part" "$out/$program"
    fi
done
echo "$out"
