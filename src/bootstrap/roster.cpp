// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/roster.hpp"

#include <cmath>
#include <cstdio>

namespace farandole {
namespace {

constexpr std::size_t kMemberBytesMin = 20;  // encoded; limits the count that a message may claim

Error malformed(const std::string& what) {
  return Error{ErrorKind::kInternal, "a member sent a malformed " + what + "."};
}

void write(Writer& writer, const Endpoint& endpoint) {
  writer.text(endpoint.host).u16(endpoint.port);
}

Endpoint read_endpoint(Reader& reader) {
  Endpoint endpoint;
  endpoint.host = reader.text();
  endpoint.port = reader.u16();
  return endpoint;
}

}  // namespace

void write(Writer& writer, const Member& member) {
  writer.i32(member.rank.value()).i32(member.local_rank).text(member.host).text(member.host_id);
  writer.i32(member.pid).u32(static_cast<std::uint32_t>(member.record.size()));
  for (const auto& [key, value] : member.record) writer.text(key).text(value);
}

Member read_member(Reader& reader) {
  Member member;
  member.rank = Rank{reader.i32()};
  member.local_rank = reader.i32();
  member.host = reader.text();
  member.host_id = reader.text();
  member.pid = reader.i32();
  const std::uint32_t record = reader.u32();
  for (std::uint32_t i = 0; i < record && reader.ok(); ++i) {
    std::string key = reader.text();
    member.record[std::move(key)] = reader.text();
  }
  return member;
}

std::string encode(const Registration& registration) {
  Writer writer;
  write(writer, registration.member);
  write(writer, registration.listener);
  writer.i32(registration.size);
  return std::move(writer).bytes();
}

Result<Registration> decode_registration(std::string_view bytes) {
  Reader reader(bytes);
  Registration registration;
  registration.member = read_member(reader);
  registration.listener = read_endpoint(reader);
  registration.size = reader.i32();
  if (!reader.complete()) return malformed("registration");
  return registration;
}

std::string encode(const Roster& roster) {
  Writer writer;
  writer.text(roster.run).u32(static_cast<std::uint32_t>(roster.members.size()));
  for (std::size_t i = 0; i < roster.members.size(); ++i) {
    write(writer, roster.members[i]);
    write(writer, roster.listeners[i]);
  }
  return std::move(writer).bytes();
}

Result<Roster> decode_roster(std::string_view bytes) {
  Reader reader(bytes);
  Roster roster;
  roster.run = reader.text();
  const std::size_t count = reader.u32();
  if (count > reader.left() / kMemberBytesMin) return malformed("table of members");
  for (std::size_t i = 0; i < count && reader.ok(); ++i) {
    roster.members.push_back(read_member(reader));
    roster.listeners.push_back(read_endpoint(reader));
    if (roster.members.back().rank != Rank{static_cast<std::int32_t>(i)}) {
      return malformed("table of members");
    }
  }
  if (!reader.complete()) return malformed("table of members");
  return roster;
}

std::string describe(const Member& member) {
  return "rank " + std::to_string(member.rank.value()) + " (host " + member.host + ", pid " +
         std::to_string(member.pid) + ")";
}

std::string describe(const std::vector<int>& ranks) {
  constexpr int kRunsMax = 16;
  std::string list;
  std::size_t i = 0;
  for (int runs = 0; i < ranks.size() && runs < kRunsMax; ++runs) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!list.empty()) list += ", ";
    list += std::to_string(ranks[i]);
    if (last > i) list += (last > i + 1 ? "-" : ", ") + std::to_string(ranks[last]);
    i = last + 1;
  }
  if (i < ranks.size()) list += " and " + std::to_string(ranks.size() - i) + " more";
  return (ranks.size() == 1 ? "rank " : "ranks ") + list;
}

std::string describe(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g s", static_cast<double>(time.count()) / 1000);
  return text;
}

}  // namespace farandole
