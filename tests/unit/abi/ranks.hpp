// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>

#include "abi/handles.hpp"
#include "farandole/farandole.h"
#include "unit/frontend/ranks.hpp"

namespace farandole::testing {

/// Runs `body` on `size` ranks, each a thread, with a handle of the world.
inline void on_ranks(int size, const std::function<void(farandole_communicator*)>& body,
                     const std::string& transport = "inproc") {
  Contexts contexts = make_ranks(size, transport);
  run_ranks(contexts, [&](Context&, Communicator& world) {
    farandole_communicator handle{.value = world};
    body(&handle);
  });
}

inline farandole_arguments arguments_of(farandole_collective collective, const void* in, void* out,
                                        std::size_t count, farandole_dtype dtype) {
  farandole_arguments arguments{};
  arguments.struct_size = sizeof(arguments);
  arguments.collective = collective;
  arguments.in = in;
  arguments.out = out;
  arguments.count = count;
  arguments.dtype = dtype;
  return arguments;
}

inline farandole_options no_options() {
  farandole_options options{};
  options.struct_size = sizeof(options);
  return options;
}

inline farandole_message message_of(farandole_message_kind kind, void* data, std::size_t count,
                                    farandole_dtype dtype, int peer) {
  farandole_message message{};
  message.struct_size = sizeof(message);
  message.data = data;
  message.count = count;
  message.kind = kind;
  message.dtype = dtype;
  message.peer = peer;
  return message;
}

inline std::string last_message() {
  return farandole_last_error()->message;
}

/// That a call succeeded; says why not.
inline void expect_ok(farandole_status status) {
  EXPECT_EQ(status, FARANDOLE_OK) << last_message();
}

/// That a call failed with this status and names the argument.
inline void expect_failure(farandole_status status, farandole_status expected,
                           const std::string& words) {
  EXPECT_EQ(status, expected) << words << ": " << last_message();
  EXPECT_EQ(farandole_last_error()->status, expected) << words;
  EXPECT_NE(last_message().find(words), std::string::npos) << words << ": " << last_message();
}

}  // namespace farandole::testing
