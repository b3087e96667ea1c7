// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/handshake.hpp"

#include <utility>

#include "bootstrap/wire.hpp"

namespace farandole {
namespace {

using namespace std::string_view_literals;
constexpr std::string_view kPreamble = "farandol\x01\0\0\0"sv;  // magic, version 1
constexpr std::size_t kCodeBytes = 32;

std::string encode(const Identity& identity) {
  Writer writer;
  writer.u8(static_cast<std::uint8_t>(identity.purpose)).i32(identity.rank);
  writer.text(identity.job).text(identity.topic);
  return std::move(writer).bytes();
}

bool decode(std::string_view bytes, Identity& identity) {
  Reader reader(bytes);
  const std::uint8_t purpose = reader.u8();
  identity.purpose = static_cast<Purpose>(purpose);
  identity.rank = reader.i32();
  identity.job = reader.text();
  identity.topic = reader.text();
  return reader.complete() && purpose <= static_cast<std::uint8_t>(kPurposeMax);
}

}  // namespace

bool Handshake::gather(std::string_view bytes) {
  if (state_ != State::kWorking) return false;
  input_.append(bytes);
  return input_.size() >= wanted_;
}

void Handshake::expect(std::size_t bytes) {
  input_.clear();
  wanted_ = bytes;
}

std::string Handshake::code(std::string_view role, std::string_view contents) const {
  std::string message = "farandole 1 ";
  message.append(role).append("\0"sv).append(client_nonce_).append(server_nonce_);
  message.append(contents);
  return std::string(view(hmac_sha256(secret_.view(), message)));
}

ClientHandshake::ClientHandshake(Secret secret, std::string nonce, Identity identity)
    : Handshake(std::move(secret)), identity_(std::move(identity)) {
  client_nonce_ = std::move(nonce);
  output_ = std::string(kPreamble) + client_nonce_;
  wanted_ = kPreamble.size() + kNonceBytes + kCodeBytes;
}

void ClientHandshake::feed(std::string_view bytes) {
  if (!gather(bytes)) return;
  proved_ ? check_verdict() : check_challenge();
}

void ClientHandshake::check_challenge() {
  const std::string_view input = input_;
  server_nonce_ = input.substr(kPreamble.size(), kNonceBytes);
  const bool genuine =
      input.substr(0, kPreamble.size()) == kPreamble &&
      equal_in_constant_time(input.substr(kPreamble.size() + kNonceBytes), code("server", ""));
  const std::string identity = encode(identity_);
  if (!genuine || identity.size() > kIdentityBytesMax) {
    state_ = State::kFailed;
    return;
  }
  Writer head;
  head.u32(static_cast<std::uint32_t>(identity.size()));
  output_ = head.bytes() + code("client", identity) + identity;
  proved_ = true;
  expect(1 + kCodeBytes);
}

void ClientHandshake::check_verdict() {
  const std::string_view input = input_;
  const bool genuine = equal_in_constant_time(input.substr(1), code("verdict", input.substr(0, 1)));
  verdict_ = static_cast<Verdict>(input[0]);
  state_ = genuine ? State::kDone : State::kFailed;
}

ServerHandshake::ServerHandshake(Secret secret, std::string nonce) : Handshake(std::move(secret)) {
  server_nonce_ = std::move(nonce);
  wanted_ = kPreamble.size() + kNonceBytes;
}

void ServerHandshake::feed(std::string_view bytes) {
  if (!gather(bytes)) return;
  switch (stage_) {
    case Stage::kHello:
      return check_hello();
    case Stage::kProofHead:
      return check_head();
    case Stage::kProofBody:
      return check_proof();
  }
}

void ServerHandshake::check_hello() {
  if (std::string_view(input_).substr(0, kPreamble.size()) != kPreamble) {
    state_ = State::kFailed;
    return;
  }
  client_nonce_ = input_.substr(kPreamble.size());
  output_ = std::string(kPreamble) + server_nonce_ + code("server", "");
  stage_ = Stage::kProofHead;
  expect(4 + kCodeBytes);
}

void ServerHandshake::check_head() {
  const std::size_t length = Reader(input_).u32();
  claimed_ = input_.substr(4);
  if (length == 0 || length > kIdentityBytesMax) {
    state_ = State::kFailed;
    return;
  }
  stage_ = Stage::kProofBody;
  expect(length);
}

void ServerHandshake::check_proof() {
  const bool genuine =
      equal_in_constant_time(claimed_, code("client", input_)) && decode(input_, identity_);
  state_ = genuine ? State::kProven : State::kFailed;
}

void ServerHandshake::answer(Verdict verdict) {
  const char status = static_cast<char>(verdict);
  output_ = std::string(1, status) + code("verdict", {&status, 1});
  state_ = State::kDone;
}

}  // namespace farandole
