// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "delegates/delegate.hpp"

#include <gtest/gtest.h>

#include "unit/delegates/priced.hpp"

namespace farandole::testing {
namespace {

// Goal: a price is a start-up and a time per byte. Method: known values, through the interface.
TEST(Delegate, PriceHasAStartUpAndATimePerByte) {
  const Priced priced("priced", {2e-6, 1e-9});
  const Delegate& delegate = priced;
  EXPECT_DOUBLE_EQ(delegate.price(Collective::kAllreduce, 4, 4).of(0), 2e-6);
  EXPECT_DOUBLE_EQ(delegate.price(Collective::kAllreduce, 4, 4).of(1000), 3e-6);
  EXPECT_DOUBLE_EQ(delegate.price(Collective::kAllreduce, 4, 2).of(1000), 6e-6);
}

}  // namespace
}  // namespace farandole::testing
