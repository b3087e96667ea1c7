// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "conformance/harness.hpp"

namespace farandole::conformance {
namespace {

/// One exchange; every third time the receive is posted late, so that messages are set aside.
void exchange(Node& node, Buffer& out, Buffer& in, std::uint32_t round) {
  const int other = 1 - node.rank();
  Send send = send_of(other, tag_of(round), out.span());
  Receive receive = receive_of(other, tag_of(round), in.span());
  node.transport().post(send);
  for (int i = 0; round % 3 == 0 && i < 20; ++i) (void)node.transport().progress();
  node.transport().post(receive);
  node.wait_quietly(receive);
  node.wait_quietly(send);
}

// Goal: once warm, messages of any size move without an allocation.
// Method: count this thread's calls of operator new over a few hundred exchanges. The watchdog
// ends a run that hangs.
TEST_P(Conformance, SteadyStateDoesNotAllocate) {
  run(GetParam(), 2, [](Node& node) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{64}, std::size_t{4000},
                                    std::size_t{50'000}, std::size_t{2'000'000}}) {
      for (const auto kind : {Buffer::Kind::kOwned, Buffer::Kind::kForeign}) {
        Buffer out(node, kind, bytes), in(node, kind, bytes);
        for (std::uint32_t i = 0; i < 20; ++i) exchange(node, out, in, i);
        const std::uint64_t before = allocations();
        for (std::uint32_t i = 0; i < 60; ++i) exchange(node, out, in, i);
        EXPECT_EQ(allocations(), before) << bytes << " bytes";
      }
    }
  });
}

}  // namespace
}  // namespace farandole::conformance
