// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/handshake.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace farandole {
namespace {

using State = Handshake::State;
const std::string kClientNonce(kNonceBytes, 'c');
const std::string kServerNonce(kNonceBytes, 's');
const Identity kIdentity{Purpose::kData, 3, "job 1", "tcp.0"};

/// Gives bytes to a side, never more at once than it asks for.
template <class Side>
void feed(Side& side, std::string_view bytes) {
  while (!bytes.empty() && side.wanted() > 0) {
    const std::size_t piece = std::min(side.wanted(), bytes.size());
    side.feed(bytes.substr(0, piece));
    bytes.remove_prefix(piece);
  }
}

struct Pair {
  ClientHandshake client;
  ServerHandshake server;
  /// Called on each message on its way; `index` counts from 0: hello, challenge, proof, verdict.
  std::function<void(int index, std::string& message)> wire = [](int, std::string&) {};

  explicit Pair(std::string_view client_secret = "secret",
                std::string_view server_secret = "secret", const Identity& identity = kIdentity)
      : client(Secret(client_secret), kClientNonce, identity),
        server(Secret(server_secret), kServerNonce) {}

  void run(Verdict verdict = Verdict::kWelcome) {
    for (int index = 0; index < 4; ++index) {
      if (index == 3 && server.state() == State::kProven) server.answer(verdict);
      std::string message = index % 2 == 0 ? client.take_output() : server.take_output();
      wire(index, message);
      if (index % 2 == 0) {
        feed(server, message);
      } else {
        feed(client, message);
      }
    }
  }
};

// Goal: two that share the secret come to know each other, and the client hears any verdict.
// Method: run it for every verdict.
TEST(Handshake, SucceedsBetweenMembers) {
  for (int verdict = 0; verdict <= static_cast<int>(Verdict::kGone); ++verdict) {
    Pair pair;
    pair.run(static_cast<Verdict>(verdict));
    ASSERT_EQ(pair.client.state(), State::kDone);
    ASSERT_EQ(pair.server.state(), State::kDone);
    EXPECT_EQ(pair.client.verdict(), static_cast<Verdict>(verdict));
    EXPECT_EQ(pair.server.identity().purpose, kIdentity.purpose);
    EXPECT_EQ(pair.server.identity().rank, kIdentity.rank);
    EXPECT_EQ(pair.server.identity().job, kIdentity.job);
    EXPECT_EQ(pair.server.identity().topic, kIdentity.topic);
  }
}

// Goal: a visitor may come for any purpose, and for no other.
// Method: each is proved and told; then the number behind the last.
TEST(Handshake, TellsEveryPurpose) {
  const int count = static_cast<int>(kPurposeMax) + 1;
  for (int purpose = 0; purpose <= count; ++purpose) {
    Identity identity = kIdentity;
    identity.purpose = static_cast<Purpose>(purpose);
    Pair pair("secret", "secret", identity);
    pair.run(Verdict::kNotNow);
    EXPECT_EQ(pair.client.state(), purpose < count ? State::kDone : State::kWorking) << purpose;
    EXPECT_EQ(pair.server.state(), purpose < count ? State::kDone : State::kFailed) << purpose;
    EXPECT_EQ(pair.server.identity().purpose, identity.purpose);
  }
}

// Goal: without the secret neither side gets anywhere, and the client says nothing of itself.
// Method: different secrets; look at what was sent.
TEST(Handshake, FailsBetweenStrangers) {
  Pair pair("secret", "another");
  std::string sent;
  pair.wire = [&](int index, std::string& message) {
    if (index % 2 == 0) sent += message;
  };
  pair.run();
  EXPECT_EQ(pair.client.state(), State::kFailed);
  EXPECT_NE(pair.server.state(), State::kProven);
  EXPECT_EQ(sent.find(kIdentity.job), std::string::npos);
}

// Goal: no bit on the wire can be changed unnoticed.
// Method: flip each bit of each message; never may both sides end content, unless the client's
// last word had been said before the change, and then the client notices.
TEST(Handshake, NoticesEveryChangedBit) {
  for (int target = 0; target < 4; ++target) {
    for (std::size_t bit = 0;; ++bit) {
      Pair pair;
      bool beyond = false;
      pair.wire = [&](int index, std::string& message) {
        if (index != target) return;
        beyond = bit >= 8 * message.size();
        if (!beyond) message[bit / 8] = static_cast<char>(message[bit / 8] ^ 1 << bit % 8);
      };
      pair.run();
      if (beyond) break;
      EXPECT_NE(pair.client.state(), State::kDone) << "message " << target << " bit " << bit;
      if (target < 3) {
        EXPECT_NE(pair.server.state(), State::kDone) << "message " << target << " bit " << bit;
      }
    }
  }
}

// Goal: a recorded conversation is worthless to whoever replays it.
// Method: replay both client messages to a server with a fresh nonce; then answer a client with
// its own words, and with a server's recorded challenge to another nonce.
TEST(Handshake, CannotBeReplayedOrReflected) {
  Pair recorded;
  std::string messages[4];
  recorded.wire = [&](int index, std::string& message) { messages[index] = message; };
  recorded.run();
  ServerHandshake server(Secret("secret"), std::string(kNonceBytes, 'x'));
  feed(server, messages[0]);
  feed(server, messages[2]);
  EXPECT_EQ(server.state(), State::kFailed);

  ClientHandshake client(Secret("secret"), std::string(kNonceBytes, 'y'), kIdentity);
  feed(client, messages[1]);
  EXPECT_EQ(client.state(), State::kFailed);

  ClientHandshake mirrored(Secret("secret"), kClientNonce, kIdentity);
  const std::string own = mirrored.take_output();
  feed(mirrored, own + own);
  EXPECT_EQ(mirrored.state(), State::kFailed);
}

// Goal: a server takes no more than it must from whoever does not know the secret, whatever he
// sends. Method: lengths of 0, 4097 and 4 GiB in a proof; random bytes from printed seeds.
TEST(Handshake, BoundsWhatAStrangerMaySay) {
  for (const std::string& length :
       {std::string(4, '\0'), std::string("\x01\x10\0\0", 4), std::string(4, '\xff')}) {
    Pair pair;
    pair.wire = [&](int index, std::string& message) {
      if (index == 2) message.replace(0, 4, length);
    };
    pair.run();
    EXPECT_EQ(pair.server.state(), State::kFailed);
  }
  for (unsigned seed = 1; seed <= 1000; ++seed) {
    std::mt19937 random(seed);
    ServerHandshake server(Secret("secret"), kServerNonce);
    Pair honest;
    std::string input = random() % 2 == 0 ? honest.client.take_output() : "";
    for (int i = 0; i < 200; ++i) input += static_cast<char>(random());
    feed(server, input);
    EXPECT_NE(server.state(), State::kProven) << "seed " << seed;
    EXPECT_LE(server.wanted(), kIdentityBytesMax);
  }
}

// Goal: another version is refused, so that it may change the rest.
// Method: raise the version number in the client's and in the server's first message.
TEST(Handshake, RefusesAnotherVersion) {
  for (const int target : {0, 1}) {
    Pair pair;
    pair.wire = [&](int index, std::string& message) {
      if (index == target) message[8] = 2;
    };
    pair.run();
    EXPECT_NE(pair.client.state(), State::kDone);
    EXPECT_NE(pair.server.state(), State::kDone);
  }
}

// Goal: a member's identity that is too long fails here rather than at the other end.
// Method: a job name of 5000 bytes.
TEST(Handshake, RefusesALongIdentity) {
  Pair pair("secret", "secret", Identity{Purpose::kControl, 0, std::string(5000, 'j'), ""});
  pair.run();
  EXPECT_EQ(pair.client.state(), State::kFailed);
}

}  // namespace
}  // namespace farandole
