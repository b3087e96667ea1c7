// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/sha256.hpp"

#include <bit>
#include <cstring>
#include <string>

#include "bootstrap/secret.hpp"

namespace farandole {
namespace {

constexpr std::size_t kBlockBytes = 64;
using Block = std::array<std::uint8_t, kBlockBytes>;
using State = std::array<std::uint32_t, 8>;

// FIPS 180-4 §4.2.2 and §5.3.3.
constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
constexpr State kInitial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

std::array<std::uint32_t, 64> expand(const Block& block) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t b = 0; b < 4; ++b) w[i] = w[i] << 8 | block[4 * i + b];
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  return w;
}

void compress(State& state, const Block& block) {
  auto w = expand(block);
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  explicit_bzero(&w, sizeof w);  // the first words are the block's, which may be a key's
  const State step = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += step[i];
}

/// The message's tail, a one bit, zeros, and the length in bits: one block or two.
std::string padding(std::string_view tail, std::uint64_t message_bytes) {
  std::string end;
  end.reserve(2 * kBlockBytes);
  end = tail;
  end.push_back('\x80');
  while (end.size() % kBlockBytes != kBlockBytes - 8) end.push_back('\0');
  for (int shift = 56; shift >= 0; shift -= 8) {
    end.push_back(static_cast<char>(message_bytes * 8 >> shift & 0xff));
  }
  return end;
}

void absorb(State& state, std::string_view blocks) {
  Block block;
  for (std::size_t at = 0; at + kBlockBytes <= blocks.size(); at += kBlockBytes) {
    for (std::size_t i = 0; i < kBlockBytes; ++i) {
      block[i] = static_cast<std::uint8_t>(blocks[at + i]);
    }
    compress(state, block);
  }
  explicit_bzero(&block, sizeof block);
}

/// A key of at most a block, padded and masked, with room for `more` bytes of what it signs.
std::string masked(std::string_view key, char mask, std::size_t more) {
  std::string block;
  block.reserve(kBlockBytes + more);
  block = key;
  block.resize(kBlockBytes, '\0');
  for (char& c : block) c = static_cast<char>(c ^ mask);
  return block;
}

}  // namespace

Digest sha256(std::string_view message) {
  State state = kInitial;
  const std::size_t whole = message.size() / kBlockBytes * kBlockBytes;
  absorb(state, message.substr(0, whole));
  const Transient end(padding(message.substr(whole), message.size()));
  absorb(state, end.text);
  Digest digest;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<std::uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  }
  return digest;
}

Digest hmac_sha256(std::string_view key, std::string_view message) {
  const bool is_long = key.size() > kBlockBytes;
  const Transient shortened(is_long ? std::string(view(sha256(key))) : "");
  if (is_long) key = shortened.text;
  Transient inner(masked(key, 0x36, message.size())), outer(masked(key, 0x5c, sizeof(Digest)));
  inner.text += message;
  outer.text += view(sha256(inner.text));
  return sha256(outer.text);
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  // Hidden from the optimizer, which could otherwise leave the loop at the first difference.
  const volatile unsigned char result = difference;
  return result == 0;
}

}  // namespace farandole
