// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "bootstrap/secret.hpp"
#include "bootstrap/sha256.hpp"
#include "farandole/result.hpp"

namespace farandole {

/// What a connection is for.
enum class Purpose : std::uint8_t {
  kRendezvous,
  kControl,
  kData,
  kProbe,  // is answered, and nothing else
};
constexpr Purpose kPurposeMax = Purpose::kProbe;

/// What a client says about itself, once the server has proved that it knows the secret.
struct Identity {
  Purpose purpose = Purpose::kControl;
  std::int32_t rank = -1;
  std::string job;
  std::string topic;  // kData: the caller's name for the connection
};

/// What a server says to a client that has proved that it knows the secret.
enum class Verdict : std::uint8_t {
  kWelcome,
  kAnotherJob,  // the same user's, but not this job
  kNotNow,      // not ready for this; try again
  kStarted,     // rendezvous is over
  kDuplicate,   // there is, or is about to be, a connection between the two
  kGone,        // this job counts the client's rank as failed
};

/// How two processes prove to each other that they know the job's secret.
///
///   client → server   magic, version, nonce c                              44 bytes
///   server → client   magic, version, nonce s, HMAC("server", c, s)        76 bytes
///   client → server   length, HMAC("client", c, s, identity), identity     36 bytes + identity
///   server → client   verdict, HMAC("verdict", c, s, verdict)              33 bytes
///
/// Both nonces are in every code, so nothing can be replayed; the roles differ, so nothing can be
/// reflected. Before a code is verified, only the magic, the version and one length, which is
/// bounded, are interpreted. The handshake proves who connects; it does not encrypt what follows.
///
/// Each side is a state machine without a socket: the caller reads exactly wanted() bytes and feeds
/// them, and sends take_output(). Bytes that follow the handshake are never read by it.
class Handshake {
 public:
  enum class State : std::uint8_t { kWorking, kProven, kDone, kFailed };

  State state() const { return state_; }
  std::size_t wanted() const { return state_ == State::kWorking ? wanted_ - input_.size() : 0; }
  std::string take_output() { return std::exchange(output_, {}); }

 protected:
  explicit Handshake(Secret secret) : secret_(std::move(secret)) {}
  ~Handshake() = default;
  bool gather(std::string_view bytes);  // true once wanted_ bytes are in input_
  void expect(std::size_t bytes);
  std::string code(std::string_view role, std::string_view contents) const;

  Secret secret_;
  std::string client_nonce_, server_nonce_;
  std::string input_, output_;
  std::size_t wanted_ = 0;
  State state_ = State::kWorking;
};

/// kWorking until kDone (then verdict() is known) or kFailed: the listener does not know the
/// secret, or is another kind of server.
class ClientHandshake : public Handshake {
 public:
  /// `nonce` is random, of kNonceBytes.
  ClientHandshake(Secret secret, std::string nonce, Identity identity);
  void feed(std::string_view bytes);
  Verdict verdict() const { return verdict_; }

 private:
  void check_challenge();
  void check_verdict();
  Identity identity_;
  bool proved_ = false;
  Verdict verdict_ = Verdict::kNotNow;
};

/// kWorking until kProven (then identity() is known, and answer() makes it kDone) or kFailed.
class ServerHandshake : public Handshake {
 public:
  ServerHandshake(Secret secret, std::string nonce);
  void feed(std::string_view bytes);
  const Identity& identity() const { return identity_; }
  void answer(Verdict verdict);
  /// Whether the client has got our code and has yet to send its own.
  bool challenged() const { return stage_ != Stage::kHello; }

 private:
  enum class Stage : std::uint8_t { kHello, kProofHead, kProofBody };
  void check_hello();
  void check_head();
  void check_proof();
  Stage stage_ = Stage::kHello;
  std::string claimed_;  // the client's code for its identity
  Identity identity_;
};

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kIdentityBytesMax = 4096;

}  // namespace farandole
