// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <tuple>

#include "transport/tcp/link.hpp"

namespace farandole::tcp {
namespace {

// Goal: an exchange is one with a single rank.
TEST(Senders, ExchangesHaveOne) {
  Senders senders;
  const OperationId first{.communicator = 1, .sequence = 1}, second{.communicator = 1};
  const Rank none{-1}, one{1};
  for (const auto& [operation, peer, only] : {std::tuple(first, one, one),
                                              {first, one, one},
                                              {first, Rank{2}, none},
                                              {first, one, none},
                                              {second, one, one}}) {
    senders.add(operation, peer);
    EXPECT_EQ(senders.only, only);
  }
}

}  // namespace
}  // namespace farandole::tcp
