// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "farandole/farandole.h"
#include "farandole/farandole.hpp"

// The structs of the C interface as those of the C++ interface. What is checked here is what the
// latter cannot see: null pointers, sizes of structs, constants, flags and reserved fields. What
// depends on the communicator, such as which ranks there are, its own calls check.
//
// Errors    kInvalidArgument naming the field; kUnsupported if a caller that was compiled with a
//           newer header sets a field that this library does not know.
namespace farandole::abi {

struct CollectiveCall {
  Arguments arguments;  // its lists of counts are the caller's memory
  CallOptions options;
};

/// Fill what they are given, which is new, since a copy of it would be most of their time.
/// `options` may be null.
Result<void> read_call(const char* call, const farandole_arguments* arguments,
                       const farandole_options* options, CollectiveCall& target);
Result<void> read_options(const char* call, const farandole_options* options, CallOptions& target);
Result<std::vector<Message>> read_messages(const char* call, const farandole_message* messages,
                                           std::size_t count);

/// Writes as much of `ranks` as the caller's struct has room for.
Result<void> write_ranks(const char* call, farandole_ranks ranks, farandole_ranks* target);

}  // namespace farandole::abi
