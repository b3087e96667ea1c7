// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "abi/status.hpp"

#include <gtest/gtest.h>

#include <cstring>
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

// Goal: the table has every function, once, and says which versions there are.
TEST(AbiStatus, TheTableIsWhole) {
  const farandole_api* const api = farandole_get_api(FARANDOLE_API_VERSION);
  ASSERT_NE(api, nullptr);
  EXPECT_EQ(api->struct_size, sizeof(farandole_api));
  EXPECT_EQ(api->version, FARANDOLE_API_VERSION);
  const std::size_t first = offsetof(farandole_api, library_version);
  void* entries[(sizeof(farandole_api) - first) / sizeof(void*)];
  std::memcpy(entries, reinterpret_cast<const std::byte*>(api) + first, sizeof(entries));
  for (std::size_t i = 0; i < std::size(entries); ++i) {
    // The last one is reserved.
    EXPECT_EQ(entries[i] == nullptr, i + 1 == std::size(entries)) << "entry " << i;
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(entries[i], entries[j]) << i << " and " << j;
  }
  EXPECT_STREQ(api->library_version(), farandole_version());
  EXPECT_EQ(farandole_get_api(FARANDOLE_API_VERSION + 1), nullptr);
  expect_failure(api->last_error()->status, FARANDOLE_INVALID_ARGUMENT,
                 "'version' is 2, allowed is 1.");
}

}  // namespace
}  // namespace farandole::testing
