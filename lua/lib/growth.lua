--- lib.growth  constants
--- What may be added while Redis is full: a group, while there are fewer than GROUPS, and a member,
--- while its group has fewer than MEMBERS. A consumer that starts then frees memory; clients could
--- otherwise exceed maxmemory at will.
return {
  GROUPS = 200,
  MEMBERS = 100,
}
