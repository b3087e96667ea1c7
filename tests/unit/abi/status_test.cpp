// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "abi/status.hpp"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "unit/abi/ranks.hpp"

namespace farandole::testing {
namespace {

// Goal: nothing that is thrown inside leaves an exported function. Method: bodies that throw what
// the standard library does, and what nobody expects.
TEST(AbiStatus, ExceptionsBecomeErrors) {
  const auto guarded = [](auto thrown) {
    return abi::guarded("farandole_run", [&]() -> Result<void> { throw thrown; });
  };
  expect_failure(guarded(std::bad_alloc()), FARANDOLE_INTERNAL,
                 "farandole_run: no memory is left.");
  expect_failure(guarded(std::length_error("too long")), FARANDOLE_INTERNAL,
                 "farandole_run: too long.");
  expect_failure(guarded(7), FARANDOLE_INTERNAL, "farandole_run: an unknown exception.");
}

// Goal: each entry of the table is the function of its name; other versions are refused.
TEST(AbiStatus, TheTableIsWhole) {
  const farandole_api* const api = farandole_get_api(FARANDOLE_API_VERSION);
  ASSERT_NE(api, nullptr);
  EXPECT_EQ(api->struct_size, sizeof(farandole_api));
  EXPECT_EQ(api->version, FARANDOLE_API_VERSION);
  EXPECT_EQ(api->library_version, &farandole_version);
#define EXPECT_ENTRY(name) EXPECT_EQ(api->name, &farandole_##name)
  EXPECT_ENTRY(last_error);
  EXPECT_ENTRY(init);
  EXPECT_ENTRY(finalize);
  EXPECT_ENTRY(get_ranks);
  EXPECT_ENTRY(allocate);
  EXPECT_ENTRY(memory_release);
  EXPECT_ENTRY(world);
  EXPECT_ENTRY(split);
  EXPECT_ENTRY(group);
  EXPECT_ENTRY(node);
  EXPECT_ENTRY(across);
  EXPECT_ENTRY(communicator_rank);
  EXPECT_ENTRY(world_ranks);
  EXPECT_ENTRY(communicator_release);
  EXPECT_ENTRY(run);
  EXPECT_ENTRY(start);
  EXPECT_ENTRY(run_messages);
  EXPECT_ENTRY(start_messages);
  EXPECT_ENTRY(wait);
  EXPECT_ENTRY(wait_for);
  EXPECT_ENTRY(test);
  EXPECT_ENTRY(abort);
  EXPECT_ENTRY(request_release);
  EXPECT_ENTRY(on_complete);
  EXPECT_ENTRY(abort_communicator);
  EXPECT_ENTRY(create_group);
  EXPECT_ENTRY(init_from_job);
#undef EXPECT_ENTRY
  EXPECT_EQ(farandole_get_api(FARANDOLE_API_VERSION + 1), nullptr);
  expect_failure(api->last_error()->status, FARANDOLE_INVALID_ARGUMENT,
                 "'version' is 2, allowed is 1.");
}

}  // namespace
}  // namespace farandole::testing
