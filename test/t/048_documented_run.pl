# docs/enrichment.md from an empty database: every SQL command of the page runs, in its order, and does what the page says.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $page = slurp_file("$ENV{LLM_TEST_DIR}/../docs/enrichment.md");
my ($conf) = $page =~ /^```\n(# postgresql\.conf.*?)^```$/ms or die 'the page has no settings';
my $node = llm_cluster('page', plain => 1, conf => $conf);

sub one { return scalar $node->safe_psql('postgres', $_[0]); }

my @blocks = $page =~ /^```sql\n(.*?)^```$/msg;
cmp_ok(scalar @blocks, '>=', 13, 'the page has commands');

foreach my $i (0 .. $#blocks)
{
	my $sql = $blocks[$i] =~ s/'SmolLM2[^']*\.gguf'/'echo:'/gr;
	my ($out, $err) = ('', '');
	my $rc = $node->psql('postgres', $sql, stdout => \$out, stderr => \$err, on_error_stop => 1);
	is($rc, 0, 'runs: ' . substr($sql, 0, 60) =~ s/\s+/ /gr) or diag($err);
	if ($sql =~ /^CREATE TYPE/) { like($out, qr/invalid input value for enum/, 'failures are shown'); }
	if ($sql =~ /reorder/) { like($err, qr/lines: product, body/, 'the order is told'); }
	if ($sql =~ /llm_enrich_create/)
	{
		ok(llm_wait_for(sub { one(q{SELECT pending FROM llm.enrichments WHERE state = 'active'}) eq '0' }), 'the queue is drained');
		is(one(q{SELECT count(*) FROM tickets WHERE summary IS NULL}), 0, 'new rows are done');
		like(one(q{SELECT summary FROM tickets WHERE id = 1}), qr/: Urgent: Tick/, 'a changed row is done again');
	}
	if ($sql =~ /llm_infer.memo/) { cmp_ok((split /\|/, $out)[1] // 0, '>=', 20, 'what was rolled back is not paid twice'); }
	is(one('SELECT count(*) FROM tickets WHERE summary IS NULL'), 0, 'every row has its answer') if $sql =~ /^CALL llm_enrich\('tickets', 'summary', prompt/;
}
llm_is_well($node, 'after the page', model => 'smollm2');
done_testing();
