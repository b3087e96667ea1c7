// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <tuple>
#include <utility>

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

// Goal: data frames are half as long again where nothing comes in, of whole pieces and within the
// limit that receivers enforce.
TEST(Core, FramesAreLongerOneWay) {
  const auto poller = *Poller::create();
  const std::size_t most = kSegmentBytesMax;
  for (const auto& [segment, one_way] : {std::pair<std::size_t, std::size_t>{16, 16},
                                         {32, 48},
                                         {256 << 10, 384 << 10},
                                         {most, most}}) {
    Core core(*poller, 2, Bytes{1024}, Bytes{segment});
    EXPECT_EQ(core.frame_bytes(), one_way);
    core.incoming.add({});
    EXPECT_EQ(core.frame_bytes(), segment);
  }
}

}  // namespace
}  // namespace farandole::tcp
