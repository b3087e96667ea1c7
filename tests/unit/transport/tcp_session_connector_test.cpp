// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "transport/tcp/session_connector.hpp"

namespace farandole::tcp {
namespace {

class FakeSession final : public Session {
 public:
  const Members& members() const override { return members_; }
  Result<int> open(Rank peer, std::string_view purpose, Deadline) override {
    return note("open", peer, purpose, 10);
  }
  Result<int> accept(Rank peer, std::string_view purpose, Deadline) override {
    return note("accept", peer, purpose, 20);
  }
  void flood(std::string_view) override {}
  void leave(std::string_view) override {}
  std::uint64_t strangers() const override { return 0; }

  std::string last;

 private:
  Result<int> note(const char* call, Rank peer, std::string_view purpose, int descriptor) {
    last = call + std::string(" ") + std::to_string(peer.value()) + " " + std::string(purpose);
    if (peer == Rank{9}) return Error{ErrorKind::kTimedOut, "rank 9 is late"};
    return descriptor;
  }
  Members members_;
};

// Goal: the control plane is asked for what the transport asks for, errors come back as they are.
TEST(SessionConnector, PassesEverythingOn) {
  FakeSession session;
  SessionConnector connector(session);
  EXPECT_EQ(*connector.open(Rank{3}, "tcp.0", Deadline::never()), 10);
  EXPECT_EQ(session.last, "open 3 tcp.0");
  EXPECT_EQ(*connector.accept(Rank{4}, "tcp.1", Deadline::never()), 20);
  EXPECT_EQ(session.last, "accept 4 tcp.1");
  const auto late = connector.open(Rank{9}, "tcp.0", Deadline::never());
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, ErrorKind::kTimedOut);
  EXPECT_EQ(late.error().message, "rank 9 is late");
}

}  // namespace
}  // namespace farandole::tcp
