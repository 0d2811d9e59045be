#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds and runs the examples with what pkg-config says about the installed package.
# usage: pkg_config.sh PREFIX LIBDIR EXAMPLES WORK   (environment: CC, CXX, PKG_CONFIG)
set -eu
prefix=$1 libdir=$2 examples=$3 work=$4

export PKG_CONFIG_PATH="$libdir/pkgconfig"
mkdir -p "$work"
for package in leapquant leapquant-static; do
  flags=$("$PKG_CONFIG" --cflags --libs "$package")
  # shellcheck disable=SC2086  # flags are words
  "$CC" -std=c11 "$examples/example.c" $flags -o "$work/c-$package"
  # shellcheck disable=SC2086
  "$CXX" -std=c++17 "$examples/example.cc" $flags -o "$work/cc-$package"
done

# The shared library is found where it was installed; the static programs must not need it.
LD_LIBRARY_PATH=$libdir "$work/c-leapquant"
LD_LIBRARY_PATH=$libdir "$work/cc-leapquant"
"$work/c-leapquant-static"
"$work/cc-leapquant-static"

test "$("$PKG_CONFIG" --variable=includedir leapquant)/leapquant/leapquant.h" -ef "$prefix/include/leapquant/leapquant.h"
