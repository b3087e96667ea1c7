// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "conformance/harness.hpp"

namespace farandole::conformance {
namespace {

constexpr std::size_t kSizes[] = {0, 100, 5000, 300'000};

/// Rank 0 sends `bytes` with a signature; rank 1 expects something else, before or after the
/// message has come. Then a good message follows on another tag.
void disagree(Node& node, std::size_t bytes, bool other_bytes, bool early, Buffer::Kind kind) {
  Buffer buffer(node, kind, bytes + 1), good(node, Buffer::Kind::kForeign, 1000);
  const Tag bad_tag = tag_of(1), good_tag = tag_of(2);
  if (node.rank() == 0) {
    fill(good.span(), 1);
    fill(buffer.span(), 2);
    Send sends[2] = {send_of(1, bad_tag, buffer.span().first(bytes)),
                     send_of(1, good_tag, good.span())};
    sends[0].signature = Signature{.dtype = 3, .root = 5, .count = 77};
    for (Send& send : sends) node.transport().post(send);
    node.barrier();
    node.wait(sends, {});
    EXPECT_EQ(sends[0].state, TransferState::kDone);
    EXPECT_EQ(sends[1].state, TransferState::kDone);
    return;
  }
  Receive bad = receive_of(0, bad_tag, buffer.span().first(other_bytes ? bytes + 1 : bytes));
  bad.signature = Signature{.dtype = 3, .root = 5, .count = other_bytes ? 77u : 78u};
  if (!early) node.transport().post(bad);
  node.barrier();
  if (early) {
    node.settle();
    node.transport().post(bad);
  }
  node.wait(bad);
  EXPECT_EQ(bad.state, TransferState::kFailed);
  EXPECT_EQ(bad.error, ErrorKind::kMismatch);
  EXPECT_EQ(bad.seen, (Signature{.dtype = 3, .root = 5, .count = 77}));
  EXPECT_EQ(bad.seen_bytes, Bytes{bytes});
  Receive next = receive_of(0, good_tag, good.span());
  node.transport().post(next);
  node.wait(next);
  EXPECT_EQ(next.state, TransferState::kDone);
  EXPECT_EQ(first_wrong(good.span(), 1), -1);
}

// Goal: a message of another length or signature fails its receive, says what came, and harms
// neither its sender nor the next message.
// Method: every combination of size, difference, order of arrival and memory.
TEST_P(Conformance, MismatchFailsOneReceive) {
  run(GetParam(), 2, [](Node& node) {
    for (const std::size_t bytes : kSizes) {
      for (const bool other_bytes : {true, false}) {
        for (const bool early : {true, false}) {
          for (const auto kind : {Buffer::Kind::kOwned, Buffer::Kind::kForeign}) {
            disagree(node, bytes, other_bytes, early, kind);
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace farandole::conformance
