// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "farandole/farandole.h"
#include "farandole/farandole.hpp"

// Converts the structs of the C interface to those of the C++ interface. It checks what the latter
// cannot see: null pointers, sizes of structs, constants, flags and reserved fields. What depends
// on the communicator, such as which ranks there are, is checked by the communicator's own calls.
//
// Errors    kInvalidArgument naming the field; kUnsupported if a caller that was compiled with a
//           newer header sets a field that this library does not know.
namespace farandole::abi {

struct CollectiveCall {
  Arguments arguments;  // its lists of counts are the caller's memory
  CallOptions options;
};

/// These fill `target`, which must be new, since a copy of it would take most of their time.
/// `options` may be null.
Result<void> read_call(const char* call, const farandole_arguments* arguments,
                       const farandole_options* options, CollectiveCall& target);
Result<void> read_options(const char* call, const farandole_options* options, CallOptions& target);
Result<std::vector<Message>> read_messages(const char* call, const farandole_message* messages,
                                           std::size_t count);

/// Writes as much of `ranks` as the caller's struct has room for.
Result<void> write_ranks(const char* call, farandole_ranks ranks, farandole_ranks* target);

}  // namespace farandole::abi
